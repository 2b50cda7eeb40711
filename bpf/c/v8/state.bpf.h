/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* What walks of V8's frames keep in the scratch memory of a CPU. */
#ifndef SIDEWINDER_V8_STATE_BPF_H
#define SIDEWINDER_V8_STATE_BPF_H

#include "../intf.h"

/* A function of JavaScript. */
struct sw_v8_function {
	__u64 shared; /* address of its SharedFunctionInfo */
	__u32 cookie;
	__u32 has_script; /* it is the program's, not V8's own */
};

/* Around the interrupted pc. */
#define SW_V8_CODE_BEFORE 16
#define SW_V8_CODE_AFTER 24

struct sw_v8_scratch {
	struct sw_v8_function function; /* that was read last */
	__u64 instance; /* of the interrupted function of WebAssembly, where it has no frame yet; otherwise 0 */
	__u64 object[SW_V8_OBJECT_BYTES / sizeof(__u64)]; /* the start of the object that was read last */
	struct sw_frame frames[2]; /* to push, the leaf's first */
	__u64 frame_count;
	__u8 code[SW_V8_CODE_BEFORE + SW_V8_CODE_AFTER]; /* around the interrupted pc */
};

#endif
