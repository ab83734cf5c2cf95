/* Writes in batches, in a shape that can be counted: run it with two counts, and the difference is what the operations between cost. */

#include "tests.h"

#include <inttypes.h>
#include <stdio.h>

#include <rdma/fi_errno.h>

#define OPERATIONS 16

static ssize_t post_plain(struct node *node, const struct settings *settings, uint64_t i, struct fi_context2 *context)
{
	return fi_write(node->ep, node->memory + i * settings->page, settings->page, node->descriptor, node->peer,
			node->remote_address + i * settings->page, node->remote_key, context);
}

static ssize_t post(struct node *node, const struct settings *settings, uint64_t i, struct fi_context2 *context)
{
	struct iovec iov = {.iov_base = node->memory + i * settings->page, .iov_len = settings->page};
	struct fi_rma_iov remote = {
		.addr = node->remote_address + i * settings->page,
		.len = settings->page,
		.key = node->remote_key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &node->descriptor, .iov_count = 1, .addr = node->peer,
		.rma_iov = &remote, .rma_iov_count = 1, .context = context,
	};

	return fi_writemsg(node->ep, &msg, FI_COMPLETION);
}

void cost_initiate(struct node *node, const struct settings *settings)
{
	struct fi_context2 contexts[OPERATIONS], *free[OPERATIONS];
	struct fi_cq_data_entry entries[BATCH];
	uint64_t reads = 0;

	for (uint64_t i = 0; i < OPERATIONS; i++)
		free[i] = &contexts[i];
	for (uint64_t done = 0; done < settings->count; done += OPERATIONS) {
		size_t free_count;

		for (uint64_t i = 0; i < OPERATIONS; i++) {
			ssize_t status;

			do {
				status = settings->is_plain ? post_plain(node, settings, i, free[i])
							    : post(node, settings, i, free[i]);
				/* While it connects. */
				if (status == -FI_EAGAIN)
					node_read(node, entries);
			} while (status == -FI_EAGAIN);
			check("fi_writemsg", status);
		}
		for (free_count = 0; free_count < OPERATIONS;) {
			size_t count = node_read(node, entries);

			reads++;
			for (size_t i = 0; i < count; i++)
				free[free_count++] = entries[i].op_context;
		}
	}
	printf("{\"program\":\"bare\",\"test\":\"cost\",\"provider\":\"%s\",\"count\":%" PRIu64 ",\"reads\":%" PRIu64 "}\n",
	       node->info->fabric_attr->prov_name, settings->count, reads);
}
