/* The scripted device of library.c. It takes work requests in the order of posting, and completes
   or fails them as the test requests. It accesses their memory on completion, so memory that was
   unmapped too early ends the test. All state is thread-local. */

struct element {
    uint64_t address;
    uint32_t length, lkey;
};
/* The common fields of send and receive work requests. */
struct work {
    uint64_t wr_id;
    struct work *next;
    struct element *list;
    int elements;
};
struct send_work {
    struct work common;
    uint32_t flags;
};
#define SIGNALED 2u

struct wc {
    uint64_t wr_id;
    uint32_t status, opcode, vendor_err, byte_len, imm, qp_num, src_qp, flags;
    uint64_t rest;
};

#define HELD_MAX 1024
struct held {
    void *queue_pair;
    struct cq *cq;
    uint64_t wr_id;
    struct element first;
    int is_signaled, is_receive;
};
struct done {
    struct cq *cq;
    struct wc wc;
};

static __thread struct held held[HELD_MAX];
static __thread struct done done[HELD_MAX];
static __thread int held_count, done_count;
static __thread uint64_t last_id;
static __thread struct element last_element;
static __thread struct cq *shared_cq;

/* The script. */
static __thread int post_errno, post_takes, post_names;
static __thread int failing_polls, arming_that_completes, completes_then, refuses_destroy, refuses_dealloc;
/* Counters. */
static __thread int polls, armings, events_taken, events_acknowledged;

/* Puts a completion into its queue. An armed queue raises its event, and is disarmed. */
static void put(struct cq *cq, struct wc wc) {
    if (done_count == HELD_MAX)
        abort();
    done[done_count++] = (struct done){cq, wc};
    if (cq->is_armed && cq->channel) {
        cq->is_armed = 0;
        if (write(((struct channel *)cq->channel)->end, &cq, sizeof cq) != sizeof cq)
            abort();
    }
}

/* Completes the oldest work requests. An unsignaled one that succeeds has no completion. */
long table_complete(long count, long status) {
    long completed = 0;
    for (; completed < count && completed < held_count; completed++) {
        struct held *it = &held[completed];
        volatile char *memory = (char *)it->first.address;
        /* Addresses of on-chip memory begin at 0, and are not host addresses. */
        if (it->first.length && it->first.address >= 4096)
            *memory = it->is_receive ? 'R' : *memory;
        struct wc wc = {.wr_id = it->wr_id, .status = status, .opcode = it->is_receive ? 128 : 0};
        wc.byte_len = it->first.length;
        if (it->is_signaled || status)
            put(it->cq, wc);
    }
    held_count -= completed;
    memmove(held, held + completed, held_count * sizeof *held);
    return completed;
}

/* Puts a completion without a work request. */
long table_forge(struct cq *cq, uint64_t wr_id) {
    put(cq, (struct wc){.wr_id = wr_id});
    return 0;
}

long table_last_id(void) { return last_id; }
long table_last_address(void) { return last_element.address; }
long table_last_length(void) { return last_element.length; }
long table_last_lkey(void) { return last_element.lkey; }
long table_held(void) { return held_count; }
long table_polls(void) { return polls; }
long table_armings(void) { return armings; }
long table_unacknowledged(void) { return events_taken - events_acknowledged; }

/* Makes the next post fail after it has taken `takes` of its list. It names the first one that it
   did not take; or, like Soft-RoCE when the doorbell fails, it names none although it has all. */
long table_fail_post(long error, long takes, long names) {
    post_errno = error, post_takes = takes, post_names = names;
    return 0;
}
long table_fail_polls(long count) { return failing_polls = count; }
/* Completes `count` directly before the nth arming from now on. */
long table_complete_at_arming(long nth, long count) {
    arming_that_completes = armings + nth;
    return completes_then = count;
}
long table_refuse_destroy(long refuse) { return refuses_destroy = refuse; }
long table_refuse_dealloc(long refuse) { return refuses_dealloc = refuse; }

static int post(void *queue_pair, struct cq *cq, struct work *list, struct work **bad, int is_receive) {
    int error = post_errno, takes = error && post_names ? post_takes : HELD_MAX;
    post_errno = 0;
    for (; list && takes; list = list->next, takes--) {
        if (held_count == HELD_MAX)
            abort();
        struct held it = {.queue_pair = queue_pair, .cq = cq, .wr_id = list->wr_id, .is_receive = is_receive};
        it.is_signaled = is_receive || ((struct send_work *)list)->flags & SIGNALED;
        if (list->elements)
            last_element = it.first = list->list[0];
        held[held_count++] = it;
        last_id = list->wr_id;
    }
    if (error && post_names)
        *bad = list;
    return error;
}
int table_post_send(struct qp *qp, struct work *list, struct work **bad) {
    return post(qp, qp->send_cq, list, bad, 0);
}
int table_post_recv(struct qp *qp, struct work *list, struct work **bad) {
    return post(qp, qp->recv_cq, list, bad, 1);
}
/* The queue pair that was created last takes it. */
int table_post_srq_recv(void *srq, struct work *list, struct work **bad) {
    return post(srq, shared_cq, list, bad, 1);
}

int table_poll_cq(struct cq *cq, int room, struct wc *wc) {
    polls++;
    if (failing_polls) {
        failing_polls--;
        /* A provider that fails on an entry may leave data that looks like a completion. */
        if (done_count)
            wc[0] = done[0].wc;
        return -1;
    }
    int count = 0, left = 0;
    for (int i = 0; i < done_count; i++)
        if (done[i].cq == cq && count < room)
            wc[count++] = done[i].wc;
        else
            done[left++] = done[i];
    done_count = left;
    return count;
}

/* Completions directly before the arming raise no event. */
int table_req_notify_cq(struct cq *cq, int solicited_only) {
    if (++armings == arming_that_completes)
        table_complete(completes_then, 0);
    cq->is_armed = 1;
    return 0;
}

int ibv_get_cq_event(struct channel *channel, struct cq **cq, void **cq_context) {
    if (read(channel->fd, cq, sizeof *cq) != sizeof *cq)
        return -1;
    *cq_context = (*cq)->cq_context;
    (*cq)->unacknowledged++;
    events_taken++;
    return 0;
}
void ibv_ack_cq_events(struct cq *cq, unsigned count) {
    cq->unacknowledged -= count;
    events_acknowledged += count;
}

int ibv_modify_qp(void *qp, void *attr, int mask) { return 0; }

void *ibv_create_qp(void **pd, struct init_attr *attr) {
    struct qp *qp = make(*pd, pd, attr->send_cq, attr->recv_cq, attr->srq, sizeof *qp);
    qp->send_cq = attr->send_cq, qp->recv_cq = attr->recv_cq;
    shared_cq = attr->srq ? attr->recv_cq : shared_cq;
    return qp;
}
/* Destroying a queue pair discards its work requests. */
int ibv_destroy_qp(void *qp) {
    if (refuses_destroy)
        return EBUSY;
    int left = 0;
    for (int i = 0; i < held_count; i++)
        if (held[i].queue_pair != qp)
            held[left++] = held[i];
    held_count = left;
    return destroy(qp);
}
int ibv_destroy_cq(struct cq *cq) {
    /* libibverbs would wait here for ever. */
    violations += cq->unacknowledged != 0;
    int left = 0;
    for (int i = 0; i < done_count; i++)
        if (done[i].cq != cq)
            done[left++] = done[i];
    done_count = left;
    return destroy(cq);
}
int table_dealloc_mw(void *mw) { return refuses_dealloc ? EBUSY : destroy(mw); }
