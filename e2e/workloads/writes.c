/*
 * Writes to /dev/null: small amounts in one function, large ones in another, with a pause after each 50.
 *
 * Usage: writes CALLS PAUSE_US. Prints how often each function wrote, and how many bytes; and, as `switches`, how often the
 * process has left a CPU since the first write.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static char bytes[4096];

static __attribute__((noinline)) long write_small(int file, long call)
{
	long written = write(file, bytes, 1 + call % 100);

	__asm__ volatile("" ::: "memory");
	return written;
}

static __attribute__((noinline)) long write_large(int file, long call)
{
	long written = write(file, bytes, 1000 + call % 100);

	__asm__ volatile("" ::: "memory");
	return written;
}

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 1000, counts[2] = { 0, 0 }, sums[2] = { 0, 0 }, before;
	useconds_t pause_us = argc > 2 ? atoi(argv[2]) : 0;
	int file = open("/dev/null", O_WRONLY);

	/* The profiler learns of the program's mappings meanwhile. */
	usleep(500000);
	before = switches();
	for (long call = 0; call < calls; call++) {
		int is_large = call % 4 == 0;

		sums[is_large] += is_large ? write_large(file, call) : write_small(file, call);
		counts[is_large]++;
		if (pause_us && call % 50 == 49)
			usleep(pause_us);
	}
	printf("write_small %ld %ld\nwrite_large %ld %ld\n", counts[0], sums[0], counts[1], sums[1]);
	printf("switches %ld\n", switches() - before);
	return 0;
}
