// Code that programs copy to memory of their own and run.
#pragma once

// A loop of a million turns: push %rbp; mov %rsp, %rbp; mov $1000000, %ecx; dec %ecx; jnz; pop %rbp; ret.
static const unsigned char LOOP[] = { 0x55, 0x48, 0x89, 0xe5, 0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3 };
