package codec

import (
	"fmt"
	"math/rand/v2"
)

// posting returns a typical document: text that has much in common with the others.
func posting(n int) string {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	word := func(words ...string) string { return words[r.IntN(len(words))] }
	return fmt.Sprintf(`{"id":"job-%d","title":"%s %s","company":"%s","city":"%s","salary":%d,`+
		`"description":"We are looking for a %s to join our %s team. You bring %d years of experience with %s, %s and %s.",`+
		`"reference":"%016x"}`,
		n, word("Senior", "Junior", "Lead", "Principal"), word("engineer", "nurse", "driver", "welder", "teacher"),
		word("Acme", "Globex", "Initech", "Umbrella", "Hooli"), word("Austin", "Berlin", "Lyon", "Osaka", "Lima"),
		20000+r.IntN(90000), word("person", "colleague", "specialist"), word("growing", "small", "global"),
		1+r.IntN(9), word("Go", "forklifts", "children"), word("Rust", "trucks", "patients"), word("SQL", "steel", "French"),
		r.Uint64())
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}
