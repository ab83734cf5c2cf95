/* One side: an endpoint of libfabric, with its queue, its memory and its peer. */

#ifndef BARE_NODE_H
#define BARE_NODE_H

#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "settings.h"

/* Completions that are taken at once. */
#define BATCH 32

struct node {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	/* Ours, of `len` bytes, and how local buffers in it are named, where the provider asks for that. */
	char *memory;
	size_t len;
	void *descriptor;
	/* The peer, and where its memory begins. */
	fi_addr_t peer;
	uint64_t remote_address;
	uint64_t remote_key;
	bool can_sleep;
};

/* Opens an endpoint over the provider that was asked for, with `len` bytes that a peer may write to. */
void node_open(struct node *node, const struct settings *settings, size_t len);

/* Tells the peer who we are, and hears who it is. One of both is the first to know the other. */
void node_meet(struct node *node, int in, int out, bool is_first);

void node_close(struct node *node);

/* Ends the program, with what failed. */
_Noreturn void fail(const char *operation, long status);

/* Ends the program, with what the queue says of the operation that failed. */
_Noreturn void node_fail_completion(struct node *node);

static inline void check(const char *operation, long status)
{
	if (status != 0)
		fail(operation, status);
}

/* What has completed by now: it also keeps the provider moving. */
static inline size_t node_read(struct node *node, struct fi_cq_data_entry entries[BATCH])
{
	ssize_t count = fi_cq_read(node->cq, entries, BATCH);

	if (count >= 0)
		return (size_t)count;
	if (count == -FI_EAVAIL)
		node_fail_completion(node);
	if (count != -FI_EAGAIN)
		fail("fi_cq_read", count);
	return 0;
}

/* As node_read, but sleeps where nothing has completed, if that was asked for and the provider can. */
size_t node_wait(struct node *node, struct fi_cq_data_entry entries[BATCH]);

/* Whether it tells of what the peer has done: one provider sets FI_REMOTE_CQ_DATA on a sender's own completion, too. */
static inline bool is_from_peer(const struct fi_cq_data_entry *entry)
{
	if (entry->flags & (FI_REMOTE_WRITE | FI_RECV))
		return true;
	return (entry->flags & FI_REMOTE_CQ_DATA) && !(entry->flags & (FI_SEND | FI_WRITE));
}

#endif
