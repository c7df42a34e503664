package crashtest

import (
	"fmt"
	"math/rand/v2"
)

// Damage has a file judged with each step-th byte of it wrong by one bit, and cut
// before that byte. content is as it was in the end.
func Damage(random *rand.Rand, content []byte, step int, judge func(damaged []byte, how string)) {
	for at := random.IntN(step); at < len(content); at += step {
		flip := byte(1) << random.IntN(8)
		content[at] ^= flip
		judge(content, fmt.Sprint("with byte ", at, " wrong"))
		content[at] ^= flip
		judge(content[:at], fmt.Sprint("cut at ", at))
	}
}
