/* Scattered pages, from drawn places here to drawn places there. */

#include "tests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

/* More pages than this in an operation, no provider takes that we know of. */
#define EACH_MAX 16

struct writer {
	struct node *node;
	const struct settings *settings;
	/* By number in a round: the page's place here, and there. */
	uint64_t *from;
	uint64_t *to;
	/* What the provider knows an operation by, and those that are free. */
	struct fi_context2 *contexts;
	struct fi_context2 **free;
	uint64_t free_count;
};

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (memory == NULL)
		fail("calloc", -FI_ENOMEM);
	return memory;
}

/* The numbers up to `count`, in an order that is the same on both sides. */
static uint64_t *draw(uint64_t count, uint64_t seed)
{
	uint64_t *numbers = allocate(count, sizeof *numbers);

	for (uint64_t i = 0; i < count; i++)
		numbers[i] = i;
	for (uint64_t i = count; i > 1; i--) {
		uint64_t other, kept = numbers[i - 1];

		seed = seed * 6364136223846793005 + 1442695040888963407;
		other = (seed >> 33) % i;
		numbers[i - 1] = numbers[other];
		numbers[other] = kept;
	}
	return numbers;
}

static void draw_both(const struct settings *settings, uint64_t **from, uint64_t **to)
{
	uint64_t places = settings->region / settings->page;

	*from = draw(places, 1);
	*to = draw(places, 2);
}

/* A word of a page's content: it differs from place to place, and is never 0. */
static uint64_t content(uint64_t page, uint64_t word)
{
	return (page << 32 | word) + 1;
}

static void fill(struct node *node, const struct settings *settings)
{
	uint64_t *words = (uint64_t *)node->memory, page_words = settings->page / sizeof *words;

	for (uint64_t i = 0; i < settings->region / settings->page * page_words; i++)
		words[i] = content(i / page_words, i % page_words);
}

/* Ends the program where a byte is not the one that was sent. */
static void verify(struct node *node, const struct settings *settings)
{
	uint64_t *from, *to, *words = (uint64_t *)node->memory, page_words = settings->page / sizeof *words;

	draw_both(settings, &from, &to);
	for (uint64_t i = 0; i < settings->pages; i++) {
		for (uint64_t word = 0; word < page_words; word++) {
			if (words[to[i] * page_words + word] != content(from[i], word)) {
				fprintf(stderr, "error: page %" PRIu64 " is wrong at word %" PRIu64 "\n", i, word);
				exit(5);
			}
		}
	}
	free(from);
	free(to);
}

/* Posts the pages from number `first` on of a round. EAGAIN is an ordinary answer. */
static ssize_t post(struct writer *writer, uint64_t first, uint64_t count)
{
	struct node *node = writer->node;
	size_t page = writer->settings->page;
	bool is_last = first + count == writer->settings->pages;
	struct iovec iov[EACH_MAX];
	struct fi_rma_iov remote[EACH_MAX];
	void *descriptors[EACH_MAX];
	struct fi_msg_rma msg = {
		.msg_iov = iov, .desc = descriptors, .iov_count = count, .addr = node->peer,
		.rma_iov = remote, .rma_iov_count = count,
		.context = writer->free[writer->free_count - 1], .data = 1,
	};

	for (uint64_t i = 0; i < count; i++) {
		iov[i].iov_base = node->memory + writer->from[first + i] * page;
		iov[i].iov_len = page;
		descriptors[i] = node->descriptor;
		remote[i].addr = node->remote_address + writer->to[first + i] * page;
		remote[i].len = page;
		remote[i].key = node->remote_key;
	}
	return fi_writemsg(node->ep, &msg, FI_COMPLETION | (is_last ? FI_REMOTE_CQ_DATA : 0));
}

/* Takes back what is done; how much. */
static uint64_t take_back(struct writer *writer)
{
	struct fi_cq_data_entry entries[BATCH];
	size_t count = node_read(writer->node, entries);

	for (size_t i = 0; i < count; i++)
		writer->free[writer->free_count++] = entries[i].op_context;
	return count;
}

static void write_rounds(struct writer *writer)
{
	const struct settings *settings = writer->settings;
	uint64_t each = settings->each, next = 0, round = 0;

	while (round < settings->rounds || writer->free_count < settings->window) {
		while (round < settings->rounds && writer->free_count > 0) {
			uint64_t count = next + each < settings->pages ? each : settings->pages - next;
			ssize_t status = post(writer, next, count);

			if (status == -FI_EAGAIN)
				break;
			check("fi_writemsg", status);
			writer->free_count--;
			next += count;
			if (next == settings->pages) {
				next = 0;
				round++;
			}
		}
		take_back(writer);
	}
}

static void writer_open(struct writer *writer, struct node *node, const struct settings *settings)
{
	struct fi_tx_attr *offer = node->info->tx_attr;

	writer->node = node;
	writer->settings = settings;
	if (settings->each > EACH_MAX || settings->each > offer->iov_limit || settings->each > offer->rma_iov_limit) {
		fprintf(stderr, "error: the provider takes %zu pages from here and %zu there in an operation\n",
			offer->iov_limit, offer->rma_iov_limit);
		exit(2);
	}
	draw_both(settings, &writer->from, &writer->to);
	writer->contexts = allocate(settings->window, sizeof *writer->contexts);
	writer->free = allocate(settings->window, sizeof *writer->free);
	for (uint64_t i = 0; i < settings->window; i++)
		writer->free[i] = &writer->contexts[i];
	writer->free_count = settings->window;
}

void write_initiate(struct node *node, const struct settings *settings, struct other *other)
{
	struct writer writer;
	uint64_t bytes = settings->rounds * settings->pages * settings->page, start, ns;

	writer_open(&writer, node, settings);
	fill(node, settings);
	start = now_ns();
	write_rounds(&writer);
	/* Until the last byte is there: that it has left says little. */
	while (!has_word(other->in))
		take_back(&writer);
	ns = now_ns() - start;
	printf("{\"program\":\"bare\",\"test\":\"write\",\"provider\":\"%s\",\"page\":%zu,\"pages\":%" PRIu64
	       ",\"window\":%" PRIu64 ",\"each\":%" PRIu64 ",\"rounds\":%" PRIu64 ",\"bytes\":%" PRIu64
	       ",\"ns\":%" PRIu64 ",\"gb_per_s\":%.4f}\n",
	       node->info->fabric_attr->prov_name, settings->page, settings->pages, settings->window,
	       settings->each, settings->rounds, bytes, ns, (double)bytes / (double)ns);
	free(writer.from);
	free(writer.to);
	free(writer.contexts);
	free(writer.free);
}

void write_await(struct node *node, const struct settings *settings)
{
	struct fi_cq_data_entry entries[BATCH];

	for (uint64_t arrived = 0; arrived < settings->rounds;) {
		size_t count = node_wait(node, entries);

		for (size_t i = 0; i < count; i++)
			arrived += is_from_peer(&entries[i]);
	}
	say_word(STDOUT_FILENO);
	verify(node, settings);
}
