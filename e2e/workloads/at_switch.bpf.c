// The least that a program at each switch of the machine costs: it does nothing.

char LICENSE[] __attribute__((section("license"), used)) = "GPL";

__attribute__((section("raw_tp/sched_switch"), used)) int at_switch(void *context)
{
	return 0;
}
