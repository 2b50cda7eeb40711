/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Everything that the eBPF programs and the receiver share: records, tables, settings and outcomes.
 *
 * The Rust view is generated from these files, so each layout and constant has one definition. Sizes and
 * offsets are in bytes and times in nanoseconds of CLOCK_MONOTONIC unless a name says otherwise.
 */
#ifndef SIDEWINDER_INTF_H
#define SIDEWINDER_INTF_H

#include "intf/outcomes.h"
#include "intf/frames.h"
#include "intf/records.h"
#include "intf/tables.h"
#include "intf/runtimes.h"
#include "intf/processes.h"
#include "intf/foreign_memory.h"
#include "intf/waits.h"
#include "intf/probes.h"
#include "intf/cpu.h"

#endif
