#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

/* What both sides tell each other, through pipes. */
struct hello {
	uint64_t address_len;
	char address[256];
	uint64_t memory;
	uint64_t key;
};

_Noreturn void fail(const char *operation, long status)
{
	fprintf(stderr, "error: %s: %s (%ld)\n", operation, fi_strerror((int)-status), status);
	exit(1);
}

_Noreturn void node_fail_completion(struct node *node)
{
	struct fi_cq_err_entry entry;
	char text[256];

	memset(&entry, 0, sizeof entry);
	if (fi_cq_readerr(node->cq, &entry, 0) < 0)
		fail("fi_cq_readerr", -FI_EIO);
	fprintf(stderr, "error: an operation failed: %s, %s\n", fi_strerror(entry.err),
		fi_cq_strerror(node->cq, entry.prov_errno, entry.err_data, text, sizeof text));
	exit(1);
}

/* The provider of that very name, or the first of what is offered: asked for one, the library also tells of layers over it. */
static struct fi_info *choose(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *offers = NULL, *chosen;
	bool is_shm = strcmp(provider, "shm") == 0;

	if (hints == NULL)
		fail("fi_allocinfo", -FI_ENOMEM);
	/* As farreach asks for it. */
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->fabric_attr->prov_name = strdup(provider);
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), is_shm ? NULL : "127.0.0.1", NULL,
				       is_shm ? 0 : FI_SOURCE, hints, &offers));
	chosen = offers;
	for (struct fi_info *info = offers; info != NULL; info = info->next) {
		if (strcmp(info->fabric_attr->prov_name, provider) == 0) {
			chosen = info;
			break;
		}
	}
	chosen = fi_dupinfo(chosen);
	fi_freeinfo(offers);
	fi_freeinfo(hints);
	if (chosen == NULL)
		fail("fi_dupinfo", -FI_ENOMEM);
	return chosen;
}

static void open_queue(struct node *node, bool sleeps)
{
	struct fi_cq_attr attr = {
		.size = node->info->tx_attr->size + node->info->rx_attr->size,
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	int status = fi_cq_open(node->domain, &attr, &node->cq, NULL);

	node->can_sleep = sleeps && status == 0;
	if (sleeps && status != 0) {
		/* Not every provider has a descriptor. */
		attr.wait_obj = FI_WAIT_NONE;
		status = fi_cq_open(node->domain, &attr, &node->cq, NULL);
	}
	check("fi_cq_open", status);
}

static void open_memory(struct node *node, size_t len)
{
	uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

	node->len = len;
	node->memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (node->memory == MAP_FAILED)
		fail("mmap", -FI_ENOMEM);
	check("fi_mr_reg", fi_mr_reg(node->domain, node->memory, len, access, 0, 1, 0, &node->mr, NULL));
	if (node->info->domain_attr->mr_mode & FI_MR_LOCAL)
		node->descriptor = fi_mr_desc(node->mr);
}

void node_open(struct node *node, const struct settings *settings, size_t len)
{
	struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};

	memset(node, 0, sizeof *node);
	node->info = choose(settings->provider);
	check("fi_fabric", fi_fabric(node->info->fabric_attr, &node->fabric, NULL));
	check("fi_domain", fi_domain(node->fabric, node->info, &node->domain, NULL));
	open_queue(node, settings->sleeps);
	check("fi_av_open", fi_av_open(node->domain, &av_attr, &node->av, NULL));
	check("fi_endpoint", fi_endpoint(node->domain, node->info, &node->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(node->ep, &node->av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(node->ep, &node->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(node->ep));
	open_memory(node, len);
}

static void give(int out, const void *bytes, size_t len)
{
	if (write(out, bytes, len) != (ssize_t)len)
		fail("write to the other side", -FI_EIO);
}

static void take(int in, void *bytes, size_t len)
{
	for (size_t have = 0; have < len;) {
		ssize_t count = read(in, (char *)bytes + have, len - have);

		if (count <= 0)
			fail("read from the other side", -FI_EIO);
		have += (size_t)count;
	}
}

void node_meet(struct node *node, int in, int out, bool is_first)
{
	bool has_addresses = node->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	struct hello hello;
	size_t len = sizeof hello.address;
	char word = '!';

	memset(&hello, 0, sizeof hello);
	check("fi_getname", fi_getname(&node->ep->fid, hello.address, &len));
	hello.address_len = len;
	hello.memory = has_addresses ? (uintptr_t)node->memory : 0;
	hello.key = fi_mr_key(node->mr);
	give(out, &hello, sizeof hello);
	take(in, &hello, sizeof hello);
	/* One after the other: where both insert at once, an operation over shm of 1.17 now and then never completes. */
	if (!is_first)
		take(in, &word, sizeof word);
	if (fi_av_insert(node->av, hello.address, 1, &node->peer, 0, NULL) != 1)
		fail("fi_av_insert", -FI_EINVAL);
	if (is_first)
		give(out, &word, sizeof word);
	node->remote_address = hello.memory;
	node->remote_key = hello.key;
}

size_t node_wait(struct node *node, struct fi_cq_data_entry entries[BATCH])
{
	const int limit_ms = 1000;
	ssize_t count;

	if (!node->can_sleep)
		return node_read(node, entries);
	count = fi_cq_sread(node->cq, entries, BATCH, NULL, limit_ms);
	if (count == -FI_EAVAIL)
		node_fail_completion(node);
	if (count < 0 && count != -FI_EAGAIN)
		fail("fi_cq_sread", count);
	return count > 0 ? (size_t)count : 0;
}

void node_close(struct node *node)
{
	check("fi_close(mr)", fi_close(&node->mr->fid));
	check("fi_close(ep)", fi_close(&node->ep->fid));
	check("fi_close(cq)", fi_close(&node->cq->fid));
	check("fi_close(av)", fi_close(&node->av->fid));
	check("fi_close(domain)", fi_close(&node->domain->fid));
	check("fi_close(fabric)", fi_close(&node->fabric->fid));
	munmap(node->memory, node->len);
	fi_freeinfo(node->info);
}
