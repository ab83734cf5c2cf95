#include "other.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64

static _Noreturn void fail_system(const char *what)
{
	perror(what);
	exit(1);
}

static _Noreturn void become_target(char **argv, int in, int out)
{
	char *arguments[ARGUMENTS_MAX] = {NULL}, program[4096];
	ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
	size_t count = 0;

	if (len < 0)
		fail_system("/proc/self/exe");
	program[len] = '\0';
	for (; argv[count] != NULL && count < ARGUMENTS_MAX - 2; count++)
		arguments[count] = argv[count];
	arguments[count] = "--target";
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	/* It polls without an end where we are gone. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(program, arguments);
	fail_system(program);
}

struct other other_start(char **argv)
{
	int to_it[2], to_us[2];
	struct other other;

	if (pipe2(to_it, O_CLOEXEC) != 0 || pipe2(to_us, O_CLOEXEC) != 0)
		fail_system("pipe2");
	other.process = fork();
	if (other.process < 0)
		fail_system("fork");
	if (other.process == 0)
		become_target(argv, to_it[0], to_us[1]);
	close(to_it[0]);
	close(to_us[1]);
	other.in = to_us[0];
	other.out = to_it[1];
	return other;
}

void other_end(struct other *other)
{
	int status;

	say_word(other->out);
	if (waitpid(other->process, &status, 0) < 0)
		fail_system("waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "error: the other side failed\n");
		exit(1);
	}
}

bool has_word(int in)
{
	char word;

	if (fcntl(in, F_SETFL, O_NONBLOCK) != 0)
		fail_system("fcntl");
	switch (read(in, &word, 1)) {
	case 1: return true;
	case 0:
		fprintf(stderr, "error: the other side is gone\n");
		exit(1);
	default: return false;
	}
}

void say_word(int out)
{
	if (write(out, "!", 1) != 1)
		fail_system("write");
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
