// The least that a sample in the kernel costs: its kernel frames, with which nothing is done.

static long (*const bpf_get_stack)(void *context, void *frames, unsigned bytes, unsigned long long flags) =
	(void *)67; // BPF_FUNC_get_stack

char LICENSE[] __attribute__((section("license"), used)) = "GPL";

unsigned long long frames[127];

__attribute__((section("perf_event"), used)) int get_stack(void *context)
{
	bpf_get_stack(context, frames, sizeof(frames), 0);
	return 0;
}
