/*
 * What farreach is measured beside: the same work on bare libfabric, as a careful user would write it.
 *
 * One process writes, the other one, which it starts, is written to. `paged` without arguments tells what there is. The result is
 * one line of JSON on stdout.
 */

#include <stdio.h>
#include <unistd.h>

#include "tests.h"

/* Longer than any test takes; both sides poll for ever otherwise where one is lost. */
#define LIMIT_S 300

static void initiate(struct node *node, const struct settings *settings, struct other *other)
{
	switch (settings->test) {
	case TEST_WRITE: write_initiate(node, settings, other); break;
	case TEST_PING: ping_initiate(node, settings); break;
	case TEST_COST: cost_initiate(node, settings); break;
	case TEST_ECHO: break;
	}
}

static void await(struct node *node, const struct settings *settings)
{
	struct fi_cq_data_entry entries[BATCH];

	switch (settings->test) {
	case TEST_WRITE: write_await(node, settings); break;
	case TEST_PING: ping_answer(node, settings); break;
	/* It is written to without being told. */
	case TEST_COST: break;
	case TEST_ECHO: break;
	}
	/* What the other side still waits for may need us. */
	while (!has_word(STDIN_FILENO))
		node_read(node, entries);
}

int main(int argc, char **argv)
{
	struct settings settings = settings_parse(argc, argv);
	struct other other;
	struct node node;

	alarm(LIMIT_S);
	if (settings.test == TEST_ECHO) {
		echo(&settings);
		return 0;
	}
	if (settings.is_target) {
		node_open(&node, &settings, settings.region);
		node_meet(&node, STDIN_FILENO, STDOUT_FILENO, true);
		await(&node, &settings);
		node_close(&node);
		return 0;
	}
	other = other_start(argv);
	node_open(&node, &settings, settings.region);
	node_meet(&node, other.in, other.out, false);
	initiate(&node, &settings, &other);
	other_end(&other);
	node_close(&node);
	return 0;
}
