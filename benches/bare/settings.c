#include "settings.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
	"usage: paged write|ping|cost|echo --provider NAME [OPTION]...\n"
	"\n"
	"write  pages from places here to places there, each drawn; the last of a round carries the immediate\n"
	"  --page BYTES     of a page (4096)\n"
	"  --region BYTES   of memory on either side (16 MiB)\n"
	"  --pages N        in a round (as many as the region has)\n"
	"  --window N       operations in flight (64)\n"
	"  --each N         pages in an operation (1)\n"
	"  --rounds N       (16)\n"
	"  --singly         one operation for each page: what this program does anyway, and the engine does not\n"
	"ping   eight bytes there and back\n"
	"  --count N        how often (20000)\n"
	"  --by write|message   a write with immediate (this), or a message\n"
	"  --completed      with a completion of its own, where the bytes could be copied at once\n"
	"cost   operations of one page in batches of 16, to be counted under callgrind\n"
	"  --count N        operations; --page BYTES\n"
	"  --idle N         polls that find nothing, at the end (0)\n"
	"  --plain          by fi_write, without a structure\n"
	"echo   eight bytes to each peer over plain TCP, without libfabric, and back; all sides sleep in epoll\n"
	"  --peers N        connections (1); --processes N   that have them (1)\n"
	"  --pause MS       before each round (none); --count N   rounds\n"
	"all\n"
	"  --wait spin|sleep    look all the time (this), or sleep where the provider can wake us\n";

static _Noreturn void refuse(const char *what)
{
	fprintf(stderr, "error: %s\n%s", what, USAGE);
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value == 0)
		refuse("a number above 0 is expected");
	return value;
}

/* Whether it is the second of two words, of which it must be one. */
static bool is_second(const char *text, const char *first, const char *second)
{
	if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
		refuse("that is not one of both words");
	return strcmp(text, second) == 0;
}

static enum test test_of(const char *word)
{
	if (strcmp(word, "write") == 0)
		return TEST_WRITE;
	if (strcmp(word, "ping") == 0)
		return TEST_PING;
	if (strcmp(word, "cost") == 0)
		return TEST_COST;
	if (strcmp(word, "echo") == 0)
		return TEST_ECHO;
	refuse("there is no such test");
}

static const struct option OPTIONS[] = {
	{"provider", required_argument, NULL, 'p'}, {"page", required_argument, NULL, 's'},
	{"region", required_argument, NULL, 'r'},   {"pages", required_argument, NULL, 'n'},
	{"window", required_argument, NULL, 'w'},   {"each", required_argument, NULL, 'e'},
	{"rounds", required_argument, NULL, 'R'},   {"count", required_argument, NULL, 'c'},
	{"idle", required_argument, NULL, 'i'},     {"peers", required_argument, NULL, 'N'},
	{"processes", required_argument, NULL, 'X'}, {"pause", required_argument, NULL, 'D'},
	{"singly", no_argument, NULL, 'S'},
	{"by", required_argument, NULL, 'b'},       {"completed", no_argument, NULL, 'C'},
	{"plain", no_argument, NULL, 'P'},          {"wait", required_argument, NULL, 'W'},
	{"target", no_argument, NULL, 'T'},         {NULL, 0, NULL, 0},
};

static void take(struct settings *settings, int option)
{
	switch (option) {
	case 'p': settings->provider = optarg; break;
	case 's': settings->page = number(optarg); break;
	case 'r': settings->region = number(optarg); break;
	case 'n': settings->pages = number(optarg); break;
	case 'w': settings->window = number(optarg); break;
	case 'e': settings->each = number(optarg); break;
	case 'R': settings->rounds = number(optarg); break;
	case 'c': settings->count = number(optarg); break;
	case 'i': settings->idle = number(optarg); break;
	case 'N': settings->peers = number(optarg); break;
	case 'X': settings->processes = number(optarg); break;
	case 'D': settings->pause_ms = number(optarg); break;
	case 'S': break;
	case 'b': settings->is_message = is_second(optarg, "write", "message"); break;
	case 'C': settings->is_completed = true; break;
	case 'P': settings->is_plain = true; break;
	case 'W': settings->sleeps = is_second(optarg, "spin", "sleep"); break;
	/* How the program starts its other side. */
	case 'T': settings->is_target = true; break;
	default: refuse("there is no such option");
	}
}

struct settings settings_parse(int argc, char **argv)
{
	struct settings settings = {
		.page = 4096, .region = 16 << 20, .window = 64, .each = 1, .rounds = 16, .count = 20000,
		.peers = 1, .processes = 1,
	};
	int option;

	if (argc < 2)
		refuse("which test?");
	settings.test = test_of(argv[1]);
	optind = 2;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1)
		take(&settings, option);
	if (optind != argc)
		refuse("a word too many");
	if (settings.provider == NULL)
		refuse("--provider is missing");
	if (settings.page > settings.region)
		refuse("a page does not fit into the region");
	if (settings.processes > settings.peers)
		refuse("there are more processes than peers");
	if (settings.pages == 0)
		settings.pages = settings.region / settings.page;
	if (settings.pages > settings.region / settings.page)
		refuse("so many pages do not fit into the region");
	return settings;
}
