/* The other side: a process of its own, started by this one. */

#ifndef BARE_OTHER_H
#define BARE_OTHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct other {
	pid_t process;
	/* What it says, and what it hears. */
	int in;
	int out;
};

/* Starts this program once more, as the target. It is a new process, so that who counts our instructions does not count its. */
struct other other_start(char **argv);

/* Tells it that it may end, and waits for that; anything but success ends us, too. */
void other_end(struct other *other);

/* Whether the other side has said its word by now. Its end without one ends us, too. */
bool has_word(int in);

/* Says the word. */
void say_word(int out);

/* Nanoseconds on a clock that only goes forward. */
uint64_t now_ns(void);

#endif
