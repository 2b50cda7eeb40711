/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * What the code that V8 generates does with the stack. Each architecture with SW_HAS_V8 has a file that defines this:
 *
 *   v8_frame_state               how much of its frame a function has that V8 has compiled
 */
#ifndef SIDEWINDER_ARCH_V8_BPF_H
#define SIDEWINDER_ARCH_V8_BPF_H

#if defined(__TARGET_ARCH_x86)
#include "x86_64.v8.bpf.h"
#endif

#endif
