/* Eight bytes there and back. */

#include "tests.h"

#include <inttypes.h>
#include <stdio.h>

#include <rdma/fi_errno.h>

#define BYTES 8

/* Rounds that only warm up. */
#define WARM_UP 1000

/* Where the bytes lie that leave, and those that come: apart, so that neither waits for the other's cache line. */
#define OUTGOING 0
#define INCOMING 4096

struct pinger {
	struct node *node;
	const struct settings *settings;
	struct fi_context2 sent;
	struct fi_context2 received;
	/* Operations of ours that are not done. */
	uint64_t in_flight;
};

static ssize_t post(struct pinger *pinger)
{
	struct node *node = pinger->node;
	char *bytes = node->memory + OUTGOING;
	uint64_t to = node->remote_address + INCOMING;

	if (pinger->settings->is_message) {
		if (!pinger->settings->is_completed)
			return fi_inject(node->ep, bytes, BYTES, node->peer);
		return fi_send(node->ep, bytes, BYTES, node->descriptor, node->peer, &pinger->sent);
	}
	if (!pinger->settings->is_completed)
		return fi_inject_writedata(node->ep, bytes, BYTES, 1, node->peer, to, node->remote_key);
	return fi_writedata(node->ep, bytes, BYTES, node->descriptor, 1, node->peer, to, node->remote_key,
			    &pinger->sent);
}

static void post_room(struct pinger *pinger)
{
	struct node *node = pinger->node;

	if (pinger->settings->is_message)
		check("fi_recv", fi_recv(node->ep, node->memory + INCOMING, BYTES, node->descriptor,
					 FI_ADDR_UNSPEC, &pinger->received));
}

/* How many of the peer's have come with one look. */
static uint64_t look(struct pinger *pinger)
{
	struct fi_cq_data_entry entries[BATCH];
	size_t count = node_wait(pinger->node, entries);
	uint64_t arrived = 0;

	for (size_t i = 0; i < count; i++) {
		if (is_from_peer(&entries[i]))
			arrived++;
		else
			pinger->in_flight--;
	}
	return arrived;
}

static void send_one(struct pinger *pinger)
{
	ssize_t status;

	/* The one before has to be done: its context is used again. */
	while (pinger->in_flight > 0)
		look(pinger);
	while ((status = post(pinger)) == -FI_EAGAIN)
		node_read(pinger->node, (struct fi_cq_data_entry[BATCH]){{0}});
	check("post", status);
	if (pinger->settings->is_completed)
		pinger->in_flight++;
}

static void await_one(struct pinger *pinger)
{
	while (look(pinger) == 0) {
	}
	post_room(pinger);
}

static void drain(struct pinger *pinger)
{
	while (pinger->in_flight > 0)
		look(pinger);
}

void ping_initiate(struct node *node, const struct settings *settings)
{
	struct pinger pinger = {.node = node, .settings = settings};
	uint64_t start = 0, ns;

	post_room(&pinger);
	for (uint64_t i = 0; i < WARM_UP + settings->count; i++) {
		if (i == WARM_UP)
			start = now_ns();
		send_one(&pinger);
		await_one(&pinger);
	}
	ns = now_ns() - start;
	drain(&pinger);
	printf("{\"program\":\"bare\",\"test\":\"ping\",\"provider\":\"%s\",\"by\":\"%s\",\"wait\":\"%s\",\"count\":%" PRIu64
	       ",\"ns\":%" PRIu64 ",\"half_rtt_us\":%.4f}\n",
	       node->info->fabric_attr->prov_name, settings->is_message ? "message" : "write",
	       node->can_sleep ? "sleep" : "spin", settings->count, ns,
	       (double)ns / (double)settings->count / 2000);
}

void ping_answer(struct node *node, const struct settings *settings)
{
	struct pinger pinger = {.node = node, .settings = settings};

	post_room(&pinger);
	for (uint64_t i = 0; i < WARM_UP + settings->count; i++) {
		await_one(&pinger);
		send_one(&pinger);
	}
	drain(&pinger);
}
