// Two callers of a C++ method, and a trace point in each call, of which the program counts what probes should count.
//
// Usage: sales CALLS MICROSECONDS; it pauses for MICROSECONDS after each 50 calls. Prints calls and sum for each caller, then
// the trace points that were hit while their semaphore was raised.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

// A trace point as in <sys/sdt.h>: provider `shop`, name `sale`, with a semaphore.
extern "C" {
__attribute__((section(".probes"), used)) volatile uint16_t shop_sale_semaphore;
}

#define TRACE_SALE(PRICE)                                                                                         \
	__asm__ volatile("990: nop\n"                                                                             \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"                                              \
			 ".balign 4\n"                                                                            \
			 ".4byte 992f-991f, 994f-993f, 3\n"                                                       \
			 "991: .asciz \"stapsdt\"\n"                                                              \
			 "992: .balign 4\n"                                                                       \
			 "993: .8byte 990b\n"                                                                     \
			 ".8byte _.stapsdt.base\n"                                                                \
			 ".8byte shop_sale_semaphore\n"                                                           \
			 ".asciz \"shop\"\n"                                                                      \
			 ".asciz \"sale\"\n"                                                                      \
			 ".asciz \"-8@%0 4@$7\"\n"                                                                \
			 "994: .balign 4\n"                                                                       \
			 ".popsection\n"                                                                          \
			 ".ifndef _.stapsdt.base\n"                                                               \
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                   \
			 ".weak _.stapsdt.base\n"                                                                 \
			 ".hidden _.stapsdt.base\n"                                                               \
			 "_.stapsdt.base: .space 1\n"                                                             \
			 ".size _.stapsdt.base, 1\n"                                                              \
			 ".popsection\n"                                                                          \
			 ".endif\n"                                                                               \
			 :                                                                                        \
			 : "nor"(PRICE))

static uint64_t traced;

namespace shop {
struct Cart {
	int64_t total = 0;

	__attribute__((noinline)) int64_t add(int64_t price)
	{
		if (shop_sale_semaphore) {
			traced++;
			TRACE_SALE(price);
		}
		total += price;
		__asm__ volatile("" ::: "memory");
		return price * 2;
	}
};
} // namespace shop

__attribute__((noinline)) static int64_t sell_small(shop::Cart &cart, int64_t price)
{
	return cart.add(price) + 1;
}

__attribute__((noinline)) static int64_t sell_large(shop::Cart &cart, int64_t price)
{
	return cart.add(10 * price) + 2;
}

int main(int argc, char **argv)
{
	int64_t calls = argc > 1 ? std::atoll(argv[1]) : 1000;
	useconds_t pause_us = argc > 2 ? std::atoi(argv[2]) : 0;
	int64_t counts[2] = {}, sums[2] = {}, results = 0;
	shop::Cart cart;

	// The profiler learns of the program's mappings meanwhile.
	usleep(500000);
	for (int64_t call = 0; call < calls; call++) {
		bool is_large = call % 4 == 0;
		int64_t price = call % 100;

		results += is_large ? sell_large(cart, price) : sell_small(cart, price);
		counts[is_large]++;
		sums[is_large] += is_large ? 10 * price : price;
		if (pause_us && call % 50 == 49)
			usleep(pause_us);
	}
	std::printf("sell_small %lld %lld\n", (long long)counts[0], (long long)sums[0]);
	std::printf("sell_large %lld %lld\n", (long long)counts[1], (long long)sums[1]);
	std::printf("traced %llu\n", (unsigned long long)traced);
	return results == 1;
}
