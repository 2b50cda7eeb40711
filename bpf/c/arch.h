/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Architecture-dependent constants that the programs and the receiver share. Those that only the programs need are in
 * arch.bpf.h. Only files in arch/ depend on an architecture's registers, ABI, instructions or page size.
 */
#ifndef SIDEWINDER_ARCH_H
#define SIDEWINDER_ARCH_H

#if defined(__TARGET_ARCH_x86)
#include "arch/x86_64.h"
#elif defined(__TARGET_ARCH_arm64)
#include "arch/aarch64.h"
#else
#error "no constants for this architecture: see arch/x86_64.h"
#endif

#endif
