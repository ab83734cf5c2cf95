/* Writes in batches, in a shape that can be counted: run it with two counts, and the difference is what the operations between cost. */

#include "tests.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#define OPERATIONS 16

/* Instead of trying again at once, which would count the machine's speed. */
#define PAUSE_US 1000

/* An operation, as the provider knows it, and where its page lies. All go to the same place: where to makes no difference. */
struct operation {
	struct fi_context2 context;
	char *page;
	bool is_refused;
};

static ssize_t post_plain(struct node *node, size_t len, struct operation *operation)
{
	return fi_write(node->ep, operation->page, len, node->descriptor, node->peer, node->remote_address,
			node->remote_key, &operation->context);
}

static ssize_t post(struct node *node, size_t len, struct operation *operation)
{
	struct iovec iov = {.iov_base = operation->page, .iov_len = len};
	struct fi_rma_iov remote = {.addr = node->remote_address, .len = len, .key = node->remote_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &node->descriptor, .iov_count = 1, .addr = node->peer,
		.rma_iov = &remote, .rma_iov_count = 1, .context = &operation->context,
	};

	return fi_writemsg(node->ep, &msg, FI_COMPLETION);
}

/* Whether the provider takes it now. */
static bool is_posted(struct node *node, const struct settings *settings, struct operation *operation)
{
	ssize_t status = settings->is_plain ? post_plain(node, settings->page, operation)
					    : post(node, settings->page, operation);

	if (status == -FI_EAGAIN)
		return false;
	check("fi_writemsg", status);
	return true;
}

/*
 * Takes what is done, and posts each page again; how many.
 *
 * It is a function of its own, so that callgrind can be told to count what is done in it, and nothing of how long connecting took.
 */
__attribute__((noinline))
static uint64_t rewrite(struct node *node, const struct settings *settings, uint64_t *refused)
{
	struct fi_cq_data_entry entries[BATCH];
	size_t count = node_read(node, entries);

	for (size_t i = 0; i < count; i++) {
		struct operation *operation = entries[i].op_context;

		if (!is_posted(node, settings, operation)) {
			operation->is_refused = true;
			++*refused;
		}
	}
	return count;
}

/* While it connects, or where the other side has to take something first. */
static void post_refused(struct node *node, const struct settings *settings, struct operation *operations,
			 uint64_t *refused)
{
	usleep(PAUSE_US);
	for (uint64_t i = 0; i < OPERATIONS; i++) {
		if (operations[i].is_refused && is_posted(node, settings, &operations[i])) {
			operations[i].is_refused = false;
			--*refused;
		}
	}
}

void cost_initiate(struct node *node, const struct settings *settings)
{
	struct operation operations[OPERATIONS];
	struct fi_cq_data_entry entries[BATCH];
	uint64_t done = 0, refused = OPERATIONS, polls = 0;

	/* All are under way before anything is counted: the first ones connect. */
	for (uint64_t i = 0; i < OPERATIONS; i++)
		operations[i] = (struct operation){.page = node->memory + i * settings->page, .is_refused = true};
	while (done < settings->count) {
		uint64_t count = rewrite(node, settings, &refused);

		polls++;
		done += count;
		if (count == 0 || refused > 0)
			post_refused(node, settings, operations, &refused);
	}
	/* How many polls a run takes depends on the machine's load. Polls that find nothing tell what one costs. */
	for (uint64_t left = OPERATIONS - refused; left > 0; left -= node_read(node, entries))
		;
	for (uint64_t i = 0; i < settings->idle; i++, polls++)
		rewrite(node, settings, &refused);
	printf("{\"program\":\"bare\",\"test\":\"cost\",\"provider\":\"%s\",\"count\":%" PRIu64 ",\"polls\":%" PRIu64
	       "}\n",
	       node->info->fabric_attr->prov_name, done, polls);
}
