// A virtual machine that a profiler takes for CPython 3.13. It exports that one's symbols and the description of its own
// structures (`_Py_DebugOffsets` at the start of `_PyRuntime`). All offsets differ from CPython's, except those that have no
// place in the description. Its stacks are known in full, and it can leave its frames in states that no walk can follow.
//
// Usage: toy_vm SECONDS ACTIVATIONS STATE
//
// A stack goes through `in_state_STATE`, then through ACTIVATIONS of the loop. Each runs one or two functions of the virtual
// machine, of which the last calls a native function, which activates the loop again; the innermost one calls `burn`. STATE
// names one of `STATES` or `EDGES`, or is `all`: then the program goes through all of them in turn. It stays on one CPU.
//
// Compiled with TAIL_CALLS it is taken for 3.14, whose loop may consist of functions that jump to each other: the loop's own
// function calls the first of them, which returns when the activation ends.
//
// The report's chain starts below `in_state_STATE`. Functions of the virtual machine are in it as `Toy.NAME:LINE`.
#define _GNU_SOURCE
#include "workload.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

// ---- The structures ---------------------------------------------------------------------------------------

// `length`, `state`, the text of `bytes` and the name of `type` are where CPython has them: its description doesn't say
// otherwise.
struct type {
    int64_t references;
    const void *type;
    int64_t length;
    const char *name;
};

struct text {
    int64_t references;
    const void *type;
    int64_t length;
    uint64_t hash;
    uint32_t state;
    uint64_t unused[2];
    char ascii[40];
};

struct bytes {
    int64_t references;
    const void *type;
    int64_t length;
    uint64_t hash;
    unsigned char content[16];
};

enum opcode { DO_NOTHING, CALL, CALL_NATIVE, RETURN };

struct unit {
    uint8_t opcode;
    uint8_t argument;
};

struct code {
    int64_t references;
    const void *type;
    uint64_t counters[6]; // change while it runs
    int32_t argument_count;
    int32_t first_line;
    uint64_t unused;
    struct text *path;
    struct text *name;
    struct text *qualified_name;
    uint64_t flags;
    struct bytes *line_table;
    uint64_t more[3];
    struct unit bytecode[4];
};

enum owner { OWNED_BY_THREAD = 0, OWNED_BY_C_STACK = 3 };

struct frame {
    uint64_t locals;
    struct unit *instruction;
    char owner;
    struct frame *previous;
    uint64_t stack_pointer;
    struct code *code;
};

struct state {
    uint64_t unused[11];
    struct frame *current;
    uint64_t more[13];
    uint64_t thread;
    uint64_t rest[8];
};

struct key {
    int is_initialized;
    pthread_key_t key;
};

struct runtime {
    uint64_t offsets[96];
    struct key key;
};

// The version, and where the description of each structure starts, in words.
#ifdef TAIL_CALLS
#define VERSION 0x030e00f0
enum { STATE = 22, FRAME = 31, CODE = 39, BYTES = 74 };
#else
#define VERSION 0x030d00f0
enum { STATE = 19, FRAME = 28, CODE = 34, BYTES = 64 };
#endif

#define OBJECTS 16 // offset of `length`, in structures that have it

__attribute__((visibility("default"))) struct runtime _PyRuntime = {
    .offsets = {
        [0] = 0x7970677562656478, // "xdebugpy"
        [1] = VERSION,
        [2] = 0, // with the global interpreter lock
        [STATE] = sizeof(struct state),
        [STATE + 4] = offsetof(struct state, current),
        [STATE + 5] = offsetof(struct state, thread),
        [FRAME] = sizeof(struct frame),
        [FRAME + 1] = offsetof(struct frame, previous),
        [FRAME + 2] = offsetof(struct frame, code),
        [FRAME + 3] = offsetof(struct frame, instruction),
        [FRAME + 5] = offsetof(struct frame, owner),
        [CODE] = sizeof(struct code),
        [CODE + 1] = offsetof(struct code, path),
        [CODE + 2] = offsetof(struct code, name),
        [CODE + 3] = offsetof(struct code, qualified_name),
        [CODE + 4] = offsetof(struct code, line_table),
        [CODE + 5] = offsetof(struct code, first_line),
        [CODE + 6] = offsetof(struct code, argument_count),
        [CODE + 9] = offsetof(struct code, bytecode),
        [BYTES] = sizeof(struct bytes),
        [BYTES + 1] = OBJECTS,
        [BYTES + 2] = offsetof(struct bytes, content),
        [BYTES + 3] = sizeof(struct text),
        [BYTES + 4] = offsetof(struct text, state),
        [BYTES + 5] = OBJECTS,
        [BYTES + 6] = offsetof(struct text, ascii),
    },
};
__attribute__((visibility("default"))) const uint32_t Py_Version = VERSION;

static __thread struct state *current_state;

NOINLINE struct state *_PyThreadState_GetCurrent(void) { return current_state; }

NOINLINE static void *value_of_key(struct key *key) { return key->is_initialized ? pthread_getspecific(key->key) : NULL; }

NOINLINE struct state *PyGILState_GetThisThreadState(void) { return value_of_key(&_PyRuntime.key); }

// ---- The functions of the virtual machine -------------------------------------------------------------------

static const struct type code_type = {.references = 1, .name = "code"};

#define KINDS 3 // of each function
enum function { ENTER = 0, DESCEND = KINDS, FUNCTIONS = 2 * KINDS };

static struct code *functions[FUNCTIONS];
// Two of them may follow each other in the memory of one activation.
static struct frame frames[4096];

static struct text *new_text(const char *ascii) {
    struct text *text = calloc(1, sizeof *text);
    *text = (struct text){.references = 1, .length = (int64_t)strlen(ascii), .state = 1 << 2 | 1 << 5 | 1 << 6};
    strncpy(text->ascii, ascii, sizeof text->ascii - 1);
    return text;
}

// Each unit is on a line of its own: the first on the one behind the function's first.
static struct bytes *new_line_table(int units) {
    struct bytes *table = calloc(1, sizeof *table);
    *table = (struct bytes){.references = 1, .length = 2 * units};
    for (int i = 0; i < units; i++) {
        table->content[2 * i] = 0x80 | 13 << 3; // without columns, for one unit
        table->content[2 * i + 1] = 1 << 1; // one line further
    }
    return table;
}

#define LINE_OF_CALL 2 // behind the first line

static int first_line_of(int function) { return 100 * (function % KINDS) + (function < DESCEND ? 10 : 50); }

static void name_of(int function, char name[24]) {
    snprintf(name, 24, "Toy.%s_%d", function < DESCEND ? "enter" : "descend", function % KINDS);
}

static struct code *new_code(int function) {
    const char *path = function < DESCEND ? "/toy/enter.toy" : "/toy/descend.toy";
    struct unit call = function < DESCEND ? (struct unit){CALL, (uint8_t)(function + DESCEND)} : (struct unit){CALL_NATIVE, 0};
    char name[24];
    name_of(function, name);
    struct code *code = calloc(1, sizeof *code);
    *code = (struct code){
        .references = 1,
        .type = &code_type,
        .argument_count = 1,
        .first_line = first_line_of(function),
        .path = new_text(path),
        .name = new_text(strchr(name, '.') + 1),
        .qualified_name = new_text(name),
        .line_table = new_line_table(3),
        .bytecode = {{DO_NOTHING}, call, {RETURN}},
    };
    return code;
}

// ---- The loop -----------------------------------------------------------------------------------------------

static uint64_t call_native(struct state *state, int left, uint64_t value);

#ifdef TAIL_CALLS
// It has been jumped to from another one, which the loop's function had called.
NOINLINE uint64_t _TAIL_CALL_CALL_NATIVE(struct state *state, int left, uint64_t value) {
    value = call_native(state, left, value);
    AFTER_CALL(value);
    return value;
}
#else
#define _TAIL_CALL_CALL_NATIVE call_native
#endif

static struct frame *push(struct frame *frame, int function, struct frame *caller) {
    struct code *code = functions[function];
    code->counters[0]++;
    *frame = (struct frame){.instruction = code->bytecode, .previous = caller, .code = code};
    return frame;
}

// Where in the innermost activation the program computes: in its last function, or in the loop itself.
enum edge {
    IN_FUNCTION,
    ENTERING, // before there is a frame
    EMPTY, // after the last function has returned
    LEAVING, // after the caller's frame is the current one again
};
static enum edge edge;

static uint64_t burn_at(enum edge here, int left, uint64_t value);

// `left` activations follow. `free` is where the next frame goes.
NOINLINE uint64_t _PyEval_EvalFrameDefault(struct state *state, int left, struct frame *free, uint64_t value) {
    struct frame shim = {.owner = OWNED_BY_C_STACK, .previous = state->current};
    value = burn_at(ENTERING, left, value);
    struct frame *frame = push(free++, (left % 4 ? DESCEND : ENTER) + left % KINDS, &shim);
    state->current = frame;
    while (frame != &shim) {
        switch ((enum opcode)frame->instruction->opcode) {
        case DO_NOTHING:
            break;
        case CALL:
            frame = push(free++, frame->instruction->argument, frame);
            state->current = frame;
            continue;
        case CALL_NATIVE:
            state->unused[0] = (uint64_t)free;
            value = _TAIL_CALL_CALL_NATIVE(state, left, value);
            break;
        case RETURN:
            frame = frame->previous;
            state->current = frame;
            free--;
            if (frame == &shim) continue;
        }
        frame->instruction++;
    }
    value = burn_at(EMPTY, left, value);
    state->current = shim.previous;
    value = burn_at(LEAVING, left, value);
    AFTER_CALL(value);
    return value;
}

// ---- The states ---------------------------------------------------------------------------------------------

static unsigned char *nothing; // no memory is here
static unsigned char *locked; // memory that may not be read
static uint64_t odd_words[64]; // of a frame: a function's, whose pointers lead nowhere
static uint64_t odd_shim[64]; // the same of a frame that ends a group
static uint64_t odd_code[64]; // of a code object: readable, and nothing in it is right
static struct code *freed; // what is left of a code object
static struct state *others; // the state of another thread

static void tear_whole(struct state *state, struct frame *frame) { (void)state, (void)frame; }
// C code that computes without the interpreter's lock: the variable is null, the key has the state.
static void tear_detached(struct state *state, struct frame *frame) { (void)state, (void)frame; current_state = NULL; }
static void tear_no_state(struct state *state, struct frame *frame) {
    tear_detached(state, frame);
    pthread_setspecific(_PyRuntime.key.key, NULL);
}
static void tear_other_thread(struct state *state, struct frame *frame) { (void)state, (void)frame; current_state = others; }
static void tear_null(struct state *state, struct frame *frame) { (void)frame; state->current = NULL; }
static void tear_unmapped(struct state *state, struct frame *frame) { (void)frame; state->current = (void *)nothing; }
static void tear_locked(struct state *state, struct frame *frame) { (void)frame; state->current = (void *)locked; }
static void tear_not_canonical(struct state *state, struct frame *frame) { (void)frame; state->current = (void *)0xdead5a5adead5a58; }
static void tear_odd_frame(struct state *state, struct frame *frame) { (void)frame; state->current = (void *)odd_words; }
static void tear_odd_shim(struct state *state, struct frame *frame) { (void)frame; state->current = (void *)odd_shim; }
static void tear_unlinked(struct state *state, struct frame *frame) { (void)state; frame->previous = NULL; }
static void tear_endless(struct state *state, struct frame *frame) { (void)state; frame->previous = frame; }
static void tear_cycle(struct state *state, struct frame *frame) { (void)state; frame->previous->previous = frame; }
static void tear_odd_owner(struct state *state, struct frame *frame) { (void)state; frame->owner = OWNED_BY_C_STACK; }
static void tear_no_code(struct state *state, struct frame *frame) { (void)state; frame->code = NULL; }
static void tear_unmapped_code(struct state *state, struct frame *frame) { (void)state; frame->code = (void *)nothing; }
static void tear_odd_code(struct state *state, struct frame *frame) { (void)state; frame->code = (void *)odd_code; }
static void tear_freed_code(struct state *state, struct frame *frame) { (void)state; frame->code = freed; }

#define STATES(X) \
    X(whole) X(detached) X(no_state) X(other_thread) X(null) X(unmapped) X(locked) X(not_canonical) X(odd_frame) X(odd_shim) \
    X(unlinked) X(endless) X(cycle) X(odd_owner) X(no_code) X(unmapped_code) X(odd_code) X(freed_code)

#define EDGES(X) X(entering, ENTERING) X(empty, EMPTY) X(leaving, LEAVING)

static void (*tear)(struct state *, struct frame *);

// Half a millisecond.
NOINLINE uint64_t burn(uint64_t value) {
    value = workload_spin(value);
    AFTER_CALL(value);
    return value;
}

static inline __attribute__((always_inline)) uint64_t burn_for_a_while(uint64_t value) {
    for (int i = 0; i < 20; i++) value = burn(value);
    return value;
}

static inline __attribute__((always_inline)) uint64_t burn_at(enum edge here, int left, uint64_t value) {
    return left == 0 && edge == here ? burn_for_a_while(value) : value;
}

// Computes with the innermost frames, and what leads to them, in a state of `STATES`.
static inline __attribute__((always_inline)) uint64_t burn_in_state(struct state *state, uint64_t value) {
    if (edge != IN_FUNCTION) return value;
    struct frame *frame = state->current, *caller = frame->previous, before = *frame, caller_before = *caller;
    tear(state, frame);
    value = burn_for_a_while(value);
    *frame = before;
    *caller = caller_before;
    state->current = frame;
    current_state = state;
    pthread_setspecific(_PyRuntime.key.key, state);
    return value;
}

#define THROUGH(n)                                                                                                     \
    NOINLINE static uint64_t through_##n(struct state *state, int left, uint64_t value) {                              \
        struct frame *free = (struct frame *)state->unused[0];                                                         \
        value = left ? _PyEval_EvalFrameDefault(state, left - 1, free, value) : burn_in_state(state, value);           \
        AFTER_CALL(value);                                                                                             \
        return value + (n);                                                                                            \
    }
THROUGH(0)
THROUGH(1)
THROUGH(2)

static inline __attribute__((always_inline)) uint64_t call_native(struct state *state, int left, uint64_t value) {
    switch (left % KINDS) {
    case 0: return through_0(state, left, value);
    case 1: return through_1(state, left, value);
    default: return through_2(state, left, value);
    }
}

#define RUN(name, how, where)                                                                            \
    NOINLINE static uint64_t in_state_##name(struct state *state, int activations, uint64_t value) {     \
        tear = how;                                                                                      \
        edge = where;                                                                                    \
        value = _PyEval_EvalFrameDefault(state, activations - 1, frames, value);                         \
        AFTER_CALL(value);                                                                               \
        return value;                                                                                    \
    }
#define RUN_IN_STATE(name) RUN(name, tear_##name, IN_FUNCTION)
#define RUN_AT_EDGE(name, where) RUN(name, tear_whole, where)
STATES(RUN_IN_STATE)
EDGES(RUN_AT_EDGE)

static const struct {
    const char *name;
    uint64_t (*run)(struct state *, int, uint64_t);
} states[] = {
#define ENTRY(name, ...) {#name, in_state_##name},
    STATES(ENTRY)
    EDGES(ENTRY)
};

// ---- The program --------------------------------------------------------------------------------------------

static struct state *new_state(uint64_t thread) {
    struct state *state = calloc(1, sizeof *state);
    state->thread = thread;
    return state;
}

// Walks of each CPU find out by themselves where the loop keeps its frames.
static void stay_on_this_cpu(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void begin(struct state *state) {
    stay_on_this_cpu();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *pages = mmap(NULL, 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    locked = pages + 4 * page;
    nothing = pages + 12 * page;
    munmap(pages + 8 * page, 8 * page);
    memset(odd_words, 0x5a, sizeof odd_words);
    memset(odd_shim, 0x5a, sizeof odd_shim);
    memset(odd_code, 0x5a, sizeof odd_code);
    ((struct frame *)odd_words)->owner = OWNED_BY_THREAD;
    for (int i = 0; i < FUNCTIONS; i++) functions[i] = new_code(i);
    freed = new_code(ENTER);
    freed->references = 0;
    others = new_state(0x7000);
    // The first word of a thread's structure is its own address.
    __asm__("mov %%fs:0, %0" : "=r"(state->thread));
    pthread_key_create(&_PyRuntime.key.key, NULL);
    _PyRuntime.key.is_initialized = 1;
    pthread_setspecific(_PyRuntime.key.key, state);
    current_state = state;
}

static void report(int activations) {
    int pid = (int)getpid();
    workload_report_begin(&pid, 1);
    for (int left = activations - 1; left >= 0; left--) {
        for (int function = left % KINDS; function < FUNCTIONS; function += KINDS) {
            if (function < DESCEND && left % 4) continue;
            char name[24];
            name_of(function, name);
            printf("\"%s:%d\",", name, first_line_of(function) + LINE_OF_CALL);
        }
#ifdef TAIL_CALLS
        printf("\"_TAIL_CALL_CALL_NATIVE\",");
#endif
        printf("\"through_%d\",", left % KINDS);
    }
    printf("\"burn\"");
    workload_report_end();
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int activations = atoi(argv[2]);
    // With two frames in each activation, there is room for all.
    if (activations < 1 || (size_t)activations > sizeof frames / sizeof *frames / 2) return 2;
    struct state *state = new_state(0);
    begin(state);
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1])), value = 1;
    while (!workload_over(deadline_ns)) {
        for (size_t i = 0; i < sizeof states / sizeof *states; i++)
            if (!strcmp(argv[3], "all") || !strcmp(argv[3], states[i].name)) value = states[i].run(state, activations, value);
    }
    AFTER_CALL(value);
    report(activations);
    return 0;
}
