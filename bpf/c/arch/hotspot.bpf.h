/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * What the code that HotSpot generates does with the stack. Each architecture's file defines all of these:
 *
 *   words_in_prologue, words_in_epilogue
 *                                how much of its frame a method has that HotSpot has compiled
 *   words_during_call, stated_blob_distance
 *                                what the code behind a call says of the frame, and of where the method begins
 *   stub_state                   with SW_REG_LINK: how much of its frame an interrupted stub has
 */
#ifndef SIDEWINDER_ARCH_HOTSPOT_BPF_H
#define SIDEWINDER_ARCH_HOTSPOT_BPF_H

#if defined(__TARGET_ARCH_x86)
#include "x86_64.hotspot.bpf.h"
#elif defined(__TARGET_ARCH_arm64)
#include "aarch64.hotspot.bpf.h"
#else
#error "no frames of HotSpot's on this architecture: see arch/x86_64.hotspot.bpf.h"
#endif

#endif
