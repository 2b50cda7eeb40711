/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * The architecture that the programs run on: constants that the receiver shares. What only the programs need is in
 * arch.bpf.h. Nothing outside of arch/ names an architecture's registers, ABI, code or pages.
 */
#ifndef SIDEWINDER_ARCH_H
#define SIDEWINDER_ARCH_H

#if defined(__TARGET_ARCH_x86)
#include "arch/x86_64.h"
#else
#error "no constants for this architecture: see arch/x86_64.h"
#endif

#endif
