package crashtest

import (
	"fmt"
	"math/rand/v2"
)

// Damage calls judge with each step-th byte of a file changed by one bit, and with the
// file cut before that byte. content is unchanged afterwards.
func Damage(random *rand.Rand, content []byte, step int, judge func(damaged []byte, how string)) {
	for at := random.IntN(step); at < len(content); at += step {
		flip := byte(1) << random.IntN(8)
		content[at] ^= flip
		judge(content, fmt.Sprint("with byte ", at, " wrong"))
		content[at] ^= flip
		judge(content[:at], fmt.Sprint("cut at ", at))
	}
}
