/*
 * Eight bytes to each of some peers over plain TCP, and back: what a program pays that sleeps in epoll on both sides. It knows nothing
 * of libfabric.
 */

#include "tests.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES 8

/* Rounds that only warm up. */
#define WARM_UP 3

/* Events that are taken at once. */
#define EVENTS 64

static int checked(const char *operation, int result)
{
	if (result < 0) {
		perror(operation);
		exit(1);
	}
	return result;
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	int yes = 1;

	checked("TCP_NODELAY", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes));
	checked("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

/* Eight bytes are never parted on the way: both sides have room, and send them at once. */
static void send_bytes(int fd)
{
	static const char bytes[BYTES];

	if (write(fd, bytes, BYTES) != BYTES)
		checked("write", -1);
}

/* Whether they have come; false where the other side is gone. */
static bool take_bytes(int fd)
{
	char bytes[BYTES];

	return read(fd, bytes, BYTES) == BYTES;
}

/* Answers on so many connections until they are closed. */
static _Noreturn void answer(const struct sockaddr_in *address, uint64_t connections)
{
	int epoll = checked("epoll_create1", epoll_create1(0));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint64_t i = 0; i < connections; i++) {
		int fd = checked("socket", socket(AF_INET, SOCK_STREAM, 0));

		checked("connect", connect(fd, (const struct sockaddr *)address, sizeof *address));
		watch(epoll, fd);
	}
	for (;;) {
		struct epoll_event events[EVENTS];
		int count = checked("epoll_wait", epoll_wait(epoll, events, EVENTS, -1));

		for (int i = 0; i < count; i++) {
			if (!take_bytes(events[i].data.fd))
				exit(0);
			send_bytes(events[i].data.fd);
		}
	}
}

/* Nanoseconds until all have answered. */
static uint64_t exchange(int epoll, const int *peers, uint64_t count)
{
	uint64_t start = now_ns(), left = count;

	for (uint64_t i = 0; i < count; i++)
		send_bytes(peers[i]);
	while (left > 0) {
		struct epoll_event events[EVENTS];
		int ready = checked("epoll_wait", epoll_wait(epoll, events, EVENTS, -1));

		for (int i = 0; i < ready; i++) {
			if (!take_bytes(events[i].data.fd)) {
				fprintf(stderr, "error: a peer is gone\n");
				exit(1);
			}
			left--;
		}
	}
	return now_ns() - start;
}

static int by_value(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return (first > second) - (first < second);
}

static void pause_ms(uint64_t ms)
{
	struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&time, &time) != 0 && errno == EINTR) {
	}
}

void echo(const struct settings *settings)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof address;
	int listener = checked("socket", socket(AF_INET, SOCK_STREAM, 0));
	int epoll = checked("epoll_create1", epoll_create1(0));
	int *peers = calloc(settings->peers, sizeof *peers);
	uint64_t *ns = calloc(settings->count, sizeof *ns), sum = 0;

	if (peers == NULL || ns == NULL)
		fail("calloc", -1);
	checked("bind", bind(listener, (struct sockaddr *)&address, len));
	checked("listen", listen(listener, 4096));
	checked("getsockname", getsockname(listener, (struct sockaddr *)&address, &len));
	for (uint64_t i = 0; i < settings->processes; i++) {
		uint64_t share = settings->peers / settings->processes + (i < settings->peers % settings->processes);

		if (checked("fork", fork()) == 0)
			answer(&address, share);
	}
	for (uint64_t i = 0; i < settings->peers; i++) {
		peers[i] = checked("accept", accept(listener, NULL, NULL));
		watch(epoll, peers[i]);
	}
	for (uint64_t i = 0; i < WARM_UP + settings->count; i++) {
		uint64_t took;

		if (settings->pause_ms > 0)
			pause_ms(settings->pause_ms);
		took = exchange(epoll, peers, settings->peers);
		if (i >= WARM_UP) {
			ns[i - WARM_UP] = took;
			sum += took;
		}
	}
	for (uint64_t i = 0; i < settings->peers; i++)
		close(peers[i]);
	while (wait(NULL) > 0) {
	}
	qsort(ns, settings->count, sizeof *ns, by_value);
	printf("{\"program\":\"bare\",\"test\":\"echo\",\"peers\":%" PRIu64 ",\"processes\":%" PRIu64 ",\"pause_ms\":%" PRIu64
	       ",\"count\":%" PRIu64 ",\"rtt_us\":%.2f,\"us_per_write\":%.3f}\n",
	       settings->peers, settings->processes, settings->pause_ms, settings->count,
	       (double)ns[settings->count / 2] / 1000,
	       (double)sum / 1000 / (double)settings->count / (double)settings->peers);
	free(peers);
	free(ns);
}
