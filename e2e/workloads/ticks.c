/*
 * Calls a function that begins with the instruction that kernels probe at the least cost, as often as it can.
 *
 * Usage: ticks SECONDS. Prints how often each caller has called it, and the time in nanoseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile long sink;

__asm__(".pushsection .text\n"
	".globl tick\n"
	".type tick, @function\n"
	"tick: .cfi_startproc\n"
	".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n" /* nop of 5 bytes */
	"ret\n"
	".cfi_endproc\n"
	".size tick, . - tick\n"
	".popsection\n");
void tick(void);

__attribute__((noinline)) static void often(void)
{
	tick();
	sink++;
}

__attribute__((noinline)) static void rarely(void)
{
	tick();
	sink--;
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
	long long begin_ns, end_ns, counts[2] = { 0, 0 };
	struct timespec half_second = { .tv_nsec = 500000000 };

	nanosleep(&half_second, 0);
	begin_ns = now_ns();
	end_ns = begin_ns + atoll(argc > 1 ? argv[1] : "1") * 1000000000LL;
	while (now_ns() < end_ns) {
		for (int i = 0; i < 1000; i++) {
			if (i % 4) {
				often();
				counts[0]++;
			} else {
				rarely();
				counts[1]++;
			}
		}
	}
	printf("often %lld\nrarely %lld\nns %lld\n", counts[0], counts[1], now_ns() - begin_ns);
	return 0;
}
