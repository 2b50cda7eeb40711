/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/* Thread-local variables, and language runtimes whose frames are read. */
#ifndef SIDEWINDER_INTF_RUNTIMES_H
#define SIDEWINDER_INTF_RUNTIMES_H

#include <linux/types.h>

/* How to find a thread's copy of a thread-local variable (ELF Handling For Thread-Local Storage). */
enum sw_tls_model {
	SW_TLS_STATIC = 1, /* at an offset from the thread pointer */
	/* at an offset in the block of its module, which is found through the thread's dynamic thread vector: */
	SW_TLS_GLIBC = 2, /* entries of 16 bytes, the length in the two words before them */
	SW_TLS_MUSL = 3, /* entries of 8 bytes, the length in the first word */
	/*
	 * Not a variable, but the path to the labels of the running goroutine: `offset` is where the thread's g is, or 0 if
	 * that is in a register alone, and `module` holds the offset of `curg` in an m, divided by 8, and in the upper 8
	 * bits the offset of `labels` in a g, likewise. Labels are a slice since Go 1.24.
	 */
	SW_TLS_GO_SLICE = 4,
	SW_TLS_GO_MAP = 5,
	/* at an offset from where a word of the thread points to; `module`, signed, is the word's offset from the thread pointer */
	SW_TLS_INDIRECT = 6,
	/* With any but the two models of goroutines: the variable points to a set of labels, not to a record (custom-labels, ABI 1). */
	SW_TLS_LABEL_SET = 8,
};

struct sw_tls_variable {
	__s32 offset;
	__u16 module;
	__u16 model;
};

#define SW_TLS_VARIABLES_MAX 4 /* of a process: several libraries may each have one of the same name */
#define SW_TLS_MODULE_MAX 126 /* vectors are read into the window */

/* Where the frames of one activation of CPython's evaluation loop end. */
enum sw_cpython_group_form {
	SW_CPYTHON_ONE_FRAME = 0, /* each activation has one frame (until 3.10) */
	SW_CPYTHON_LAST_IS_ENTRY = 1, /* the frame whose `is_entry` is set is the last (3.11) */
	/* a frame that the loop keeps on the C stack, and that isn't shown, follows the last (since 3.12) */
	SW_CPYTHON_ENDS_AT_SHIM = 2,
};

/* Since 3.12, frames with this owner or a higher one are on the C stack. */
#define SW_CPYTHON_OWNED_BY_C_STACK 3

enum sw_cpython_instruction {
	SW_CPYTHON_INDEX = 0, /* an `int`: offset in the code object's bytecode, in bytes (until 3.9) */
	SW_CPYTHON_INDEX_BY_2 = 1, /* likewise, in units of 2 bytes (3.10) */
	SW_CPYTHON_POINTER = 2, /* into the bytecode at the end of the code object */
};

/*
 * Where CPython keeps its frames: offsets of fields, in bytes. The first group is in a PyThreadState, the second in a frame,
 * the third in a code object.
 */
struct sw_cpython {
	__u16 thread_id; /* the address of the thread's `struct pthread` */
	__u16 cframe; /* 0: `current_frame` is in the state; otherwise in the structure that this points to (3.11, 3.12) */
	__u16 current_frame;

	__u16 previous;
	__u16 code;
	__u16 instruction;
	__u16 owner; /* one byte: what ends a group */
	__u16 copy; /* 4 bytes: number of the copy of the bytecode that has the instruction; 0: the code object's own */
	__u16 frame_bytes; /* to read of a frame, for all of these */

	__u16 bytecode;
	__u16 copies; /* pointer to a word, and behind it pointers to copies of the bytecode; 0: there are none */
	__u16 identity; /* fields that don't change, and that tell apart code objects which have one address in turn */
	__u16 identity_bytes; /* a multiple of 8 */
	/* In the identity: pointers to the name, the path, and the table of lines. */
	__u16 name;
	__u16 path;
	__u16 lines;

	__u8 group_form; /* sw_cpython_group_form */
	__u8 instruction_form; /* sw_cpython_instruction */
	__u8 identity_has_texts; /* the texts of the name and the path belong to it, too (until 3.11) */
	__u8 reserved[5];
};

/* A part of HotSpot's code cache, over the addresses that it has reserved. */
struct sw_code_heap {
	__u64 start;
	__u64 bytes;
	/*
	 * The segment map: a byte for each segment of the heap. The first segment of a block has 0, and others how many segments
	 * to go back, towards it.
	 */
	__u64 segments;
};

#define SW_CODE_HEAPS 4

/* Where HotSpot keeps its code: addresses in the process, and offsets of fields, in bytes. */
struct sw_hotspot {
	struct sw_code_heap heaps[SW_CODE_HEAPS]; /* unused ones are empty */
	__u64 code_start; /* a range that contains all heaps */
	__u64 code_bytes;
	__u64 call_stub_return; /* where methods return to that native code has called */
	__u64 interpreter; /* the interpreter's code */
	__u32 interpreter_bytes;

	/* In a CodeBlob, which follows the header of its block. Sizes are 4 bytes, pointers 8. */
	__u16 name; /* pointer */
	__u16 size;
	__u16 frame_size; /* in words */
	__u16 frame_complete; /* offset in the code */
	__u16 code; /* where the code begins */

	/* In an nmethod, which is a CodeBlob. */
	__u16 method; /* pointer */
	__u16 compile_id;
	/* Two handlers to which deoptimized functions are returned to. */
	__u16 deopt_handlers[2];
	__u16 original_pc; /* offset from the stack pointer, at which such a function's frame has the address that it had */

	/* In a Method, and in the ConstMethod to which it points. */
	__u16 const_method;
	__u16 bytecodes;
	__u16 constants; /* pointer to its ConstantPool */

	__u16 pool_holder; /* in a ConstantPool: pointer to the class */
	__u16 class_name; /* in a class: pointer to its name, a Symbol */
	/* In a Symbol: the length of its text, in 2 bytes, and the text. */
	__u16 symbol_length;
	__u16 symbol_body;

	__u8 segment_shift;
	__u8 block_header_bytes;
	__u8 has_offsets; /* `code` and the handlers are offsets from the blob of 4 bytes (since 23), not pointers */
	__u8 frame_complete_is_short; /* 2 bytes (since 24) */
	__u8 bytecode; /* in a frame of the interpreter: how far below the frame pointer the address of the bytecode is */
	__u8 sender_sp; /* the register with the caller's stack pointer at the entry of an interpreted method */
	__u8 reserved[4];
};

/* A part of a file, in bytes. */
struct sw_file_range {
	__u32 start;
	__u32 bytes;
};

/*
 * How V8 describes the functions of JavaScript: offsets of fields in its objects, in bytes, and numbers of types. V8's loop is
 * the code that runs functions without compiling them: its first range is the entry of the interpreter, the others are the
 * handlers of bytecodes.
 */
struct sw_v8 {
	struct sw_file_range builtins; /* V8's own code in its file, which includes the loop */
	__u16 map_type; /* in a Map: the type of its objects, 2 bytes */
	__u16 shared; /* in a JSFunction: pointer to its SharedFunctionInfo */
	/* In a SharedFunctionInfo. */
	__u16 script; /* pointer to its Script */
	__u16 positions; /* 6 bytes: numbers of parameters, and a position */
	__u16 literal; /* number in the script, 4 bytes */
	__u16 script_id; /* in a Script */
	/* Types: of a Script, and the first and the last of a JSFunction. */
	__u16 script_type;
	__u16 first_function_type;
	__u16 last_function_type;
	/*
	 * What frames of WebAssembly's functions, of the code through which these call JavaScript, and of regular expressions have
	 * in the place of a function's context; 0: unknown.
	 */
	__u16 wasm_frame;
	__u16 wasm_to_js_frame;
	__u16 regexp_frame;
};

#define SW_V8_OBJECT_BYTES 128 /* of an object are read, at most */

#define SW_BLOB_BYTES 384 /* of a blob are read, at most: all fields are in these */
#define SW_SEGMENT_HOPS 64 /* a block of a MiB takes about as many */

#define SW_CPYTHON_STATE_BYTES 256 /* of a PyThreadState are read */
#define SW_CPYTHON_FRAME_BYTES 128 /* `frame_bytes` is at most this */
#define SW_CPYTHON_NO_PLACE 0x7fffffff /* offset of an instruction that was not found in its function's bytecode */
#define SW_COOKIE_MULTIPLIER 0x9E3779B97F4A7C15ull

/* Until 3.11: fields of a string (`PyASCIIObject`), and where its text is if it is compact. */
#define SW_CPYTHON_TEXT_LENGTH 16 /* in characters */
#define SW_CPYTHON_TEXT_STATE 32
#define SW_CPYTHON_TEXT_ASCII 48
#define SW_CPYTHON_TEXT_COMPACT 72 /* of any text that isn't ASCII */

#define SW_VM_LOOP_RANGES 16 /* copies of a loop of tail calls included; of others there are up to 4 */
#define SW_VM_UNLINKED_RANGES 4

/* A language runtime that a process runs. */
struct sw_runtime {
	__u32 file; /* that contains its loop */
	__u32 kind; /* sw_frame_kind of its frames */
	struct sw_file_range loop[SW_VM_LOOP_RANGES]; /* the code of the loop */
	/* Of these, where an activation's frame isn't the thread's current one: not yet (until 3.12), or no more (until 3.10). */
	struct sw_file_range unlinked[SW_VM_UNLINKED_RANGES];
	/* Where a thread has the address of its state; if the first is null, the second counts. A model of 0 is none. */
	struct sw_tls_variable state[2];
	/* Of these, one is used, by `kind`. */
	struct sw_cpython cpython;
	struct sw_hotspot hotspot;
	struct sw_v8 v8;
};

#endif
