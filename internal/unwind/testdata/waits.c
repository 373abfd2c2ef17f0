/*
 * A program that knows its own stack: it prints what backtrace(3) says of it, and then waits.
 * The first argument says how. Each line is "ADDRESS NAME+OFFSET", "-" where dladdr(3) has no
 * name; the first line is the number of the thread, the last is "end".
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *how;
static volatile unsigned long work;

static void tell(void)
{
	void *frames[200];
	int n = backtrace(frames, 200);

	printf("%ld\n", syscall(SYS_gettid));
	for (int i = 0; i < n; i++) {
		Dl_info info = {0};

		if (dladdr((char *)frames[i] - 1, &info) && info.dli_sname)
			printf("%lx %s+%lx\n", (unsigned long)frames[i], info.dli_sname,
			       (unsigned long)((char *)frames[i] - (char *)info.dli_saddr));
		else
			printf("%lx -\n", (unsigned long)frames[i]);
	}
	printf("end\n");
	fflush(stdout);
}

__attribute__((noinline)) void wait_here(void)
{
	tell();
	if (!strcmp(how, "sleep")) {
		struct timespec day = {86400, 0};

		nanosleep(&day, NULL);
	} else if (!strcmp(how, "lock")) {
		pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

		pthread_mutex_lock(&lock);
		pthread_mutex_lock(&lock);
	} else if (!strcmp(how, "spin")) {
		for (;;)
			work++;
	} else if (!strcmp(how, "clock")) {
		struct timespec now;

		for (;;)
			work += clock_gettime(CLOCK_MONOTONIC, &now);
	} else {
		char byte;

		while (read(0, &byte, 1) > 0)
			work++;
	}
	work++;
}

/* A frame whose size only the program knows: its CFA is found through a frame pointer. */
__attribute__((noinline)) void with_room(int n)
{
	char *room = alloca(n * 100);

	memset(room, n, n * 100);
	wait_here();
	work += room[n];
}

__attribute__((noinline)) void deep(int n)
{
	if (n > 0)
		deep(n - 1);
	else
		with_room(7);
	work++;
}

static int compare(const void *a, const void *b)
{
	if (*(const int *)a == 1 || *(const int *)b == 1)
		deep(20);
	return *(const int *)a - *(const int *)b;
}

static void on_signal(int number)
{
	(void)number;
	deep(3);
}

/* Through the C library, which has no frame pointers, and back. */
__attribute__((noinline)) static void *run(void *argument)
{
	int numbers[] = {1, 2};

	if (!strcmp(how, "signal")) {
		how = "read";
		signal(SIGUSR1, on_signal);
		raise(SIGUSR1);
	}
	qsort(numbers, 2, sizeof(int), compare);
	work++;
	return argument;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	how = argc > 1 ? argv[1] : "read";
	if (argc > 2) { /* in the first thread */
		run(NULL);
		return 0;
	}
	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, NULL);
	return 0;
}
