# A program that is its entry point, without any library. Nothing describes how to unwind the entry point, or says how long
# it is. It computes at the start of its only stack, in a part that it reaches by a jump and that is longer than compilers'
# entry points, and in a function that it calls, which is described.
# Usage: entry
	.globl	begin
	.text
leaf:
	.cfi_startproc
	mov	$20000, %ecx
1:	imul	$77, %rax, %rax
	dec	%ecx
	jnz	1b
	ret
	.cfi_endproc
begin:
	xor	%ebp, %ebp
	jmp	work
	.skip	200, 0x90
work:
	mov	$30000, %ebx
2:	call	leaf
	mov	$20000, %ecx
3:	imul	$77, %rax, %rax
	dec	%ecx
	jnz	3b
	dec	%ebx
	jnz	2b
	mov	$60, %eax
	xor	%edi, %edi
	syscall
