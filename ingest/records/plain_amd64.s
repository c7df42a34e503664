#include "textflag.h"

// func plainBlocks(text []byte, at int) int
TEXT ·plainBlocks(SB), NOSPLIT, $0-40
	MOVQ text_base+0(FP), SI
	MOVQ text_len+8(FP), BX
	MOVQ at+24(FP), AX
	SUBQ $16, BX               // where the last sixteen bytes begin
	MOVQ $0x2222222222222222, DX
	MOVQ DX, X1
	PUNPCKLQDQ X1, X1          // quotes
	MOVQ $0x5c5c5c5c5c5c5c5c, DX
	MOVQ DX, X2
	PUNPCKLQDQ X2, X2          // backslashes
	MOVQ $0x1f1f1f1f1f1f1f1f, DX
	MOVQ DX, X3
	PUNPCKLQDQ X3, X3          // the last control characters

next:
	CMPQ AX, BX
	JGT  done
	MOVOU (SI)(AX*1), X0
	MOVOA X0, X4
	MOVOA X0, X5
	PMINUB X3, X4
	PCMPEQB X0, X4             // at most 0x1f
	PCMPEQB X1, X5
	PCMPEQB X2, X0
	POR  X5, X4
	POR  X0, X4
	PMOVMSKB X4, CX
	TESTL CX, CX
	JNZ  found
	ADDQ $16, AX
	JMP  next

found:
	BSFL CX, CX
	ADDQ CX, AX

done:
	MOVQ AX, ret+32(FP)
	RET
