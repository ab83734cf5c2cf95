/* A replacement of libibverbs for tests, compiled with the scripted device of device.c. It creates
   objects, counts the children of each, and records when a parent is destroyed before a child.
   Counts are thread-local, so that tests do not affect each other. */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Every C object of verbs begins with its context. The counts are in front of it. */
struct object {
    struct object *parents[4];
    int children;
    void *context;
    char rest[8 * 1024];
};

static __thread int live, violations, refuses_dereg;

int table_live(void) { return live; }
int table_violations(void) { return violations; }
void table_refuse_dereg(int refuse) { refuses_dereg = refuse; }

static struct object *of(void *c) {
    return c ? (struct object *)((char *)c - __builtin_offsetof(struct object, context)) : 0;
}

static void *make(void *context, void *a, void *b, void *c, void *d, size_t size) {
    struct object *made = calloc(1, __builtin_offsetof(struct object, context) + size);
    struct object *parents[4] = {of(a), of(b), of(c), of(d)};
    for (int i = 0; i < 4; i++)
        if (parents[i])
            parents[i]->children++;
    memcpy(made->parents, parents, sizeof parents);
    made->context = context;
    live++;
    return &made->context;
}

static int destroy(void *c) {
    struct object *gone = of(c);
    if (gone->children) {
        violations++;
        return EBUSY;
    }
    for (int i = 0; i < 4; i++)
        if (gone->parents[i])
            gone->parents[i]->children--;
    live--;
    free(gone);
    return 0;
}

/* Devices and contexts. */

struct device {
    void *ops[2];
    int node_type, transport;
    char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};
static struct device device = {.name = "table0", .dev_name = "uverbs-table"};

void **ibv_get_device_list(int *count) {
    void **list = calloc(2, sizeof *list);
    list[0] = &device;
    *count = 1;
    return list;
}
void ibv_free_device_list(void **list) { free(list); }
uint64_t ibv_get_device_guid(void *d) { return 0; }

/* An extended context extends backwards from the plain one that is returned. Rust fills it. */
#define FRONT 4096
void *ibv_open_device(void *d) {
    char *made = calloc(1, 2 * FRONT);
    live++;
    return made + FRONT;
}
int ibv_close_device(void *context) {
    live--;
    free((char *)context - FRONT);
    return 0;
}

/* Objects. A context counts no children, because it is not a `struct object`. */

void *ibv_alloc_pd(void *context) { return make(context, 0, 0, 0, 0, 64); }
int ibv_dealloc_pd(void *pd) { return destroy(pd); }

struct mr {
    void *context, *pd, *addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};
void *ibv_reg_mr(void **pd, void *addr, size_t length, int access) {
    struct mr *mr = make(*pd, pd, 0, 0, 0, sizeof *mr);
    mr->addr = addr, mr->length = length, mr->lkey = 7, mr->rkey = 9;
    return mr;
}
int ibv_dereg_mr(void *mr) { return refuses_dereg ? EBUSY : destroy(mr); }

/* A pipe that carries the pointers of the queues that raise an event. */
struct channel {
    void *context;
    int fd, refcnt;
    int end;
};
void *ibv_create_comp_channel(void *context) {
    struct channel *channel = make(context, 0, 0, 0, 0, sizeof *channel);
    int ends[2];
    if (pipe(ends))
        abort();
    channel->fd = ends[0], channel->end = ends[1];
    return channel;
}
int ibv_destroy_comp_channel(struct channel *channel) {
    close(channel->fd);
    close(channel->end);
    return destroy(channel);
}

struct cq {
    void *context, *channel, *cq_context;
    uint32_t handle;
    int cqe;
    char rest[224];
    int is_armed, unacknowledged;
};
void *ibv_create_cq(void *context, int cqe, void *cq_context, void *channel, int vector) {
    struct cq *cq = make(context, channel, 0, 0, 0, sizeof *cq);
    cq->channel = channel, cq->cq_context = cq_context, cq->cqe = cqe;
    return cq;
}

void *ibv_create_srq(void **pd, void *attr) { return make(*pd, pd, 0, 0, 0, 256); }
int ibv_destroy_srq(void *srq) { return destroy(srq); }

struct init_attr {
    void *qp_context, *send_cq, *recv_cq, *srq;
};
struct qp {
    void *context, *qp_context, *pd, *send_cq, *recv_cq, *srq;
    char rest[512];
};

void *ibv_create_ah(void **pd, void *attr) { return make(*pd, pd, 0, 0, 0, 64); }
int ibv_destroy_ah(void *ah) { return destroy(ah); }

/* Functions for the context's tables. */

void *table_alloc_mw(void **pd, int type) { return make(*pd, pd, 0, 0, 0, 64); }

struct dm {
    void *context;
    int (*to)(struct dm *, uint64_t, const void *, size_t);
    int (*from)(void *, struct dm *, uint64_t, size_t);
    uint32_t comp_mask, handle;
    size_t length;
    char bytes[];
};
struct dm_attr {
    size_t length;
    uint32_t log_align, comp_mask;
};
static int to(struct dm *dm, uint64_t offset, const void *host, size_t length) {
    if (offset + length > dm->length)
        return EFAULT;
    memcpy(dm->bytes + offset, host, length);
    return 0;
}
static int from(void *host, struct dm *dm, uint64_t offset, size_t length) {
    if (offset + length > dm->length)
        return EFAULT;
    memcpy(host, dm->bytes + offset, length);
    return 0;
}
void *table_alloc_dm(void *context, struct dm_attr *attr) {
    struct dm *dm = make(context, 0, 0, 0, 0, sizeof *dm + attr->length);
    dm->to = to, dm->from = from, dm->length = attr->length;
    return dm;
}
int table_free_dm(void *dm) { return destroy(dm); }
void *table_reg_dm_mr(void **pd, void *dm, uint64_t offset, size_t length, unsigned access) {
    struct mr *mr = make(*pd, pd, dm, 0, 0, sizeof *mr);
    /* Returns the arguments, so that the test can check them. */
    mr->addr = 0, mr->length = length, mr->lkey = (uint32_t)offset, mr->rkey = access;
    return mr;
}
