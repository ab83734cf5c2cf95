/*
 * Scattered pages over UCX, to compare the engine with: `ucx write --provider tcp|shm [OPTION]...`.
 *
 * The work, the options and the result are those of `benches/bare`: each round writes every page of the region, from drawn places
 * here to drawn places there, and then raises a number at the target, which the target polls. The target verifies every byte after
 * the time was taken.
 *
 * The target's memory is allocated by UCX, so that within a host the initiator maps it and a put is a copy. That is the best that
 * UCX has there. Memory of the user is written by `process_vm_writev`, at half the rate.
 */

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

/* Longer than any run takes: both sides poll. */
#define LIMIT_S 120
/* The number of rounds arrived lies behind the pages. */
#define TAIL 4096
#define ADDRESS_MAX 4096
/* Pages below this size are small. */
#define SMALL 16384

struct settings {
	const char *provider;
	uint64_t page, region, window, rounds;
};

/* What the target tells the initiator. */
struct invitation {
	uint64_t memory;
	uint64_t address_len, key_len;
	char address[ADDRESS_MAX], key[ADDRESS_MAX];
};

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void check(const char *what, ucs_status_t status)
{
	if (status != UCS_OK) {
		fprintf(stderr, "error: %s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value == 0) {
		fprintf(stderr, "error: %s is no number above 0\n", text);
		exit(2);
	}
	return value;
}

static struct settings parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"provider", required_argument, NULL, 'p'}, {"page", required_argument, NULL, 's'},
		{"region", required_argument, NULL, 'r'},   {"window", required_argument, NULL, 'w'},
		{"rounds", required_argument, NULL, 'R'},   {NULL, 0, NULL, 0},
	};
	struct settings settings = {.page = 4096, .region = 16 << 20, .window = 64, .rounds = 16};
	bool is_known = argc > 1 && strcmp(argv[1], "write") == 0;
	int option;

	optind = 2;
	while (is_known && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'p': settings.provider = optarg; break;
		case 's': settings.page = number(optarg); break;
		case 'r': settings.region = number(optarg); break;
		case 'w': settings.window = number(optarg); break;
		case 'R': settings.rounds = number(optarg); break;
		default: is_known = false;
		}
	}
	if (!is_known || settings.provider == NULL || settings.region % settings.page != 0 || settings.page % 8 != 0) {
		fprintf(stderr, "usage: ucx write --provider tcp|shm [--page N] [--region N] [--window N] [--rounds N]\n");
		exit(2);
	}
	return settings;
}

/* The same order and the same content as in `benches/bare`. */
static uint64_t *draw(uint64_t count, uint64_t seed)
{
	uint64_t *numbers = calloc(count, sizeof *numbers);

	if (numbers == NULL)
		fail("calloc");
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

static uint64_t content(uint64_t page, uint64_t word)
{
	return (page << 32 | word) + 1;
}

static void verify(const struct settings *settings, const uint64_t *words)
{
	uint64_t places = settings->region / settings->page, page_words = settings->page / 8;
	uint64_t *from = draw(places, 1), *to = draw(places, 2);

	for (uint64_t i = 0; i < places; i++) {
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

static void send_all(int fd, const void *bytes, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t count = write(fd, (const char *)bytes + done, len - done);

		if (count <= 0)
			fail("write to the other side");
		done += (size_t)count;
	}
}

static void recv_all(int fd, void *bytes, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t count = read(fd, (char *)bytes + done, len - done);

		if (count <= 0)
			fail("read from the other side");
		done += (size_t)count;
	}
}

/* Sets a variable for UCX. What the environment has already stays, to try other settings. */
static void prefer(const char *name, const char *value)
{
	setenv(name, value, 0);
}

static ucp_worker_h open_worker(const struct settings *settings, ucp_context_h *context)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
	ucp_worker_params_t worker_params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_worker_h worker;

	if (strcmp(settings->provider, "tcp") == 0) {
		prefer("UCX_TLS", "tcp");
		prefer("UCX_NET_DEVICES", "lo");
		/* With the 8 KiB of the default, large pages reach a third of the rate. */
		prefer("UCX_TCP_TX_SEG_SIZE", "2m");
		prefer("UCX_TCP_RX_SEG_SIZE", "2m");
		/* Small pages are faster if they are copied to the segment, many to a system call. */
		prefer("UCX_TCP_PUT_ENABLE", settings->page < SMALL ? "n" : "y");
	} else {
		prefer("UCX_TLS", "shm");
	}
	check("ucp_init", ucp_init(&params, NULL, context));
	check("ucp_worker_create", ucp_worker_create(*context, &worker_params, &worker));
	return worker;
}

static void target(const struct settings *settings, int fd)
{
	ucp_mem_map_params_t map = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = settings->region + TAIL, .flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t memory = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
	struct invitation invitation = {0};
	volatile uint64_t *arrived;
	ucp_address_t *address;
	ucp_context_h context;
	ucp_worker_h worker = open_worker(settings, &context);
	ucp_mem_h handle;
	size_t len;
	void *key;
	char word = '!';

	check("ucp_mem_map", ucp_mem_map(context, &map, &handle));
	check("ucp_mem_query", ucp_mem_query(handle, &memory));
	memset(memory.address, 0, settings->region + TAIL);
	arrived = (uint64_t *)((char *)memory.address + settings->region);
	invitation.memory = (uintptr_t)memory.address;
	check("ucp_worker_get_address", ucp_worker_get_address(worker, &address, &len));
	invitation.address_len = len;
	if (len > ADDRESS_MAX)
		fail("the address is too long");
	memcpy(invitation.address, address, len);
	ucp_worker_release_address(worker, address);
	check("ucp_rkey_pack", ucp_rkey_pack(context, handle, &key, &len));
	invitation.key_len = len;
	if (len > ADDRESS_MAX)
		fail("the key is too long");
	memcpy(invitation.key, key, len);
	ucp_rkey_buffer_release(key);
	send_all(fd, &invitation, sizeof invitation);
	while (*arrived < settings->rounds)
		ucp_worker_progress(worker);
	send_all(fd, &word, 1);
	verify(settings, memory.address);
	/* The initiator closes first, and may need progress here for it. */
	while (recv(fd, &word, 1, MSG_DONTWAIT) != 0)
		ucp_worker_progress(worker);
	ucp_mem_unmap(context, handle);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

struct writer {
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucp_rkey_h key;
	uint64_t in_flight;
};

static void on_put(void *request, ucs_status_t status, void *writer)
{
	check("ucp_put_nbx", status);
	((struct writer *)writer)->in_flight--;
	ucp_request_free(request);
}

static void put(struct writer *writer, const void *from, uint64_t len, uint64_t to)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = on_put, .user_data = writer,
	};
	ucs_status_ptr_t request = ucp_put_nbx(writer->ep, from, len, to, writer->key, &param);

	if (UCS_PTR_IS_ERR(request))
		check("ucp_put_nbx", UCS_PTR_STATUS(request));
	if (request != NULL)
		writer->in_flight++;
}

static bool is_done(ucp_worker_h worker, ucs_status_ptr_t request)
{
	if (request == NULL)
		return true;
	ucp_worker_progress(worker);
	return ucp_request_check_status(request) != UCS_INPROGRESS;
}

static void flush(struct writer *writer)
{
	ucp_request_param_t param = {0};
	ucs_status_ptr_t request = ucp_worker_flush_nbx(writer->worker, &param);

	if (UCS_PTR_IS_ERR(request))
		check("ucp_worker_flush_nbx", UCS_PTR_STATUS(request));
	while (!is_done(writer->worker, request))
		;
	if (request != NULL)
		ucp_request_free(request);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t *filled(const struct settings *settings)
{
	uint64_t page_words = settings->page / 8;
	uint64_t *words = mmap(NULL, settings->region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (words == MAP_FAILED)
		fail("mmap");
	madvise(words, settings->region, MADV_HUGEPAGE);
	for (uint64_t i = 0; i < settings->region / 8; i++)
		words[i] = content(i / page_words, i % page_words);
	return words;
}

/* Writes every page in each round, and then the number of the round. The fence keeps that number behind the pages. */
static void write_rounds(struct writer *writer, const struct settings *settings, const char *source, uint64_t memory)
{
	uint64_t places = settings->region / settings->page, *from = draw(places, 1), *to = draw(places, 2);
	uint64_t *numbers = calloc(settings->rounds, sizeof *numbers);

	if (numbers == NULL)
		fail("calloc");
	for (uint64_t round = 0; round < settings->rounds; round++) {
		for (uint64_t i = 0; i < places; i++) {
			while (writer->in_flight >= settings->window)
				ucp_worker_progress(writer->worker);
			put(writer, source + from[i] * settings->page, settings->page, memory + to[i] * settings->page);
		}
		check("ucp_worker_fence", ucp_worker_fence(writer->worker));
		numbers[round] = round + 1;
		put(writer, &numbers[round], sizeof numbers[round], memory + settings->region);
	}
	flush(writer);
	free(numbers);
	free(from);
	free(to);
}

static void initiate(const struct settings *settings, int fd)
{
	ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	uint64_t start, ns, bytes = settings->rounds * settings->region;
	struct invitation invitation;
	struct writer writer = {0};
	ucp_request_param_t param = {0};
	ucs_status_ptr_t closing;
	ucp_context_h context;
	const uint64_t *source;
	uint64_t zero = 0;
	char word;

	writer.worker = open_worker(settings, &context);
	recv_all(fd, &invitation, sizeof invitation);
	ep_params.address = (const ucp_address_t *)invitation.address;
	check("ucp_ep_create", ucp_ep_create(writer.worker, &ep_params, &writer.ep));
	check("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(writer.ep, invitation.key, &writer.key));
	source = filled(settings);
	/* The first put connects. */
	put(&writer, &zero, sizeof zero, invitation.memory + settings->region);
	flush(&writer);
	start = now_ns();
	write_rounds(&writer, settings, (const char *)source, invitation.memory);
	recv_all(fd, &word, 1);
	ns = now_ns() - start;
	printf("{\"program\":\"ucx\",\"test\":\"write\",\"provider\":\"%s\",\"page\":%" PRIu64 ",\"window\":%" PRIu64
	       ",\"rounds\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"gb_per_s\":%.4f}\n",
	       settings->provider, settings->page, settings->window, settings->rounds, bytes, ns,
	       (double)bytes / (double)ns);
	fflush(stdout);
	ucp_rkey_destroy(writer.key);
	closing = ucp_ep_close_nbx(writer.ep, &param);
	while (!UCS_PTR_IS_ERR(closing) && !is_done(writer.worker, closing))
		;
	if (UCS_PTR_IS_PTR(closing))
		ucp_request_free(closing);
	close(fd);
	ucp_worker_destroy(writer.worker);
	ucp_cleanup(context);
}

int main(int argc, char **argv)
{
	struct settings settings = parse(argc, argv);
	int ends[2], status;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		fail("socketpair");
	child = fork();
	if (child < 0)
		fail("fork");
	alarm(LIMIT_S);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		target(&settings, ends[1]);
		return 0;
	}
	close(ends[1]);
	initiate(&settings, ends[0]);
	if (waitpid(child, &status, 0) < 0)
		fail("waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "error: the target failed\n");
		return 1;
	}
	return 0;
}
