/* The tests, of each side. */

#ifndef BARE_TESTS_H
#define BARE_TESTS_H

#include "node.h"
#include "other.h"

void write_initiate(struct node *node, const struct settings *settings, struct other *other);
void write_await(struct node *node, const struct settings *settings);

void ping_initiate(struct node *node, const struct settings *settings);
void ping_answer(struct node *node, const struct settings *settings);

void cost_initiate(struct node *node, const struct settings *settings);

/* Both sides of it. */
void echo(const struct settings *settings);

#endif
