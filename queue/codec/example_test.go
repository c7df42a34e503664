package codec_test

import (
	"fmt"

	"docstore/queue/codec"
)

func Example() {
	c, err := codec.ByName("s2")
	if err != nil {
		panic(err)
	}
	encoder, err := c.NewEncoder(nil)
	if err != nil {
		panic(err)
	}
	document := []byte("gardener wanted, gardener wanted, gardener wanted")
	stored, ok := encoder.Encode(nil, document)
	fmt.Println(ok, len(stored) < len(document))

	decoder, err := c.NewDecoder(nil)
	if err != nil {
		panic(err)
	}
	decoded, err := decoder.Decode(nil, stored, len(document))
	fmt.Println(string(decoded), err)
	// Output:
	// true true
	// gardener wanted, gardener wanted, gardener wanted <nil>
}
