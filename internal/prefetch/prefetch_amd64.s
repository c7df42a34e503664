#include "textflag.h"

// func lines(p *byte, n int)
TEXT ·lines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), BX
	ADDQ AX, BX
	ANDQ $~63, AX

next:
	CMPQ AX, BX
	JAE  done
	PREFETCHT0 (AX)
	ADDQ $64, AX
	JMP  next

done:
	RET
