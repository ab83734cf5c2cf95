/* What the user may say. */

#ifndef BARE_SETTINGS_H
#define BARE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum test { TEST_WRITE, TEST_PING, TEST_COST, TEST_ECHO };

struct settings {
	enum test test;
	const char *provider;
	/* write */
	size_t page;
	size_t region;
	uint64_t pages;
	uint64_t window;
	uint64_t each;
	uint64_t rounds;
	/* ping, cost */
	uint64_t count;
	uint64_t idle;
	bool is_message;
	bool is_completed;
	bool is_plain;
	/* echo */
	uint64_t peers;
	uint64_t processes;
	uint64_t pause_ms;
	/* all */
	bool sleeps;
	bool is_target;
};

/* Ends the program with the usage where it does not understand. */
struct settings settings_parse(int argc, char **argv);

#endif
