/* Writes in batches, in a shape that can be counted: run it with two counts, and the difference is what the operations between cost. */

#include "tests.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#define OPERATIONS 16

/* Instead of trying again at once, which would count the machine's speed. */
#define PAUSE_US 1000

/* What the provider knows operations by. */
struct contexts {
	struct fi_context2 *list[OPERATIONS];
	uint64_t count;
};

static ssize_t post_plain(struct node *node, uint64_t offset, size_t page, struct fi_context2 *context)
{
	return fi_write(node->ep, node->memory + offset, page, node->descriptor, node->peer,
			node->remote_address + offset, node->remote_key, context);
}

static ssize_t post(struct node *node, uint64_t offset, size_t page, struct fi_context2 *context)
{
	struct iovec iov = {.iov_base = node->memory + offset, .iov_len = page};
	struct fi_rma_iov remote = {.addr = node->remote_address + offset, .len = page, .key = node->remote_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &node->descriptor, .iov_count = 1, .addr = node->peer,
		.rma_iov = &remote, .rma_iov_count = 1, .context = context,
	};

	return fi_writemsg(node->ep, &msg, FI_COMPLETION);
}

static void take_back(struct node *node, struct contexts *back)
{
	struct fi_cq_data_entry entries[BATCH];
	size_t count = node_read(node, entries);

	for (size_t i = 0; i < count; i++)
		back->list[back->count++] = entries[i].op_context;
}

/* Posts with each context of ours, and takes them all back. */
static void write_batch(struct node *node, const struct settings *settings, struct contexts *ours, struct contexts *back)
{
	uint64_t offset = 0;

	while (ours->count > 0) {
		struct fi_context2 *context = ours->list[--ours->count];
		ssize_t status;

		while ((status = settings->is_plain ? post_plain(node, offset, settings->page, context)
						    : post(node, offset, settings->page, context)) == -FI_EAGAIN) {
			/* While it connects, or the other side has to take something first. */
			usleep(PAUSE_US);
			take_back(node, back);
		}
		check("fi_writemsg", status);
		offset += settings->page;
	}
	take_back(node, back);
	while (back->count < OPERATIONS) {
		usleep(PAUSE_US);
		take_back(node, back);
	}
}

void cost_initiate(struct node *node, const struct settings *settings)
{
	struct fi_context2 all[OPERATIONS];
	/* Those that are ours, and those that came back, in turn. */
	struct contexts both[2] = {{.count = OPERATIONS}, {.count = 0}};
	uint64_t done = 0;

	for (uint64_t i = 0; i < OPERATIONS; i++)
		both[0].list[i] = &all[i];
	for (uint64_t turn = 0; done < settings->count; turn ^= 1) {
		write_batch(node, settings, &both[turn], &both[turn ^ 1]);
		done += OPERATIONS;
	}
	printf("{\"program\":\"bare\",\"test\":\"cost\",\"provider\":\"%s\",\"count\":%" PRIu64 "}\n",
	       node->info->fabric_attr->prov_name, done);
}
