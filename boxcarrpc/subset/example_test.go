package subset_test

import (
	"fmt"

	"docstore/boxcarrpc/subset"
)

func ExampleByName() {
	rocksteadier, err := subset.ByName("rocksteadier", nil)
	if err != nil {
		panic(err)
	}
	const frontends, backends = 30, 1000
	fmt.Println(rocksteadier.Subset(nil, 17, frontends, backends, 5))
	fmt.Println(rocksteadier.Subset(nil, 17, frontends, backends+1, 5), "one backend more")
	fmt.Println(rocksteadier.Subset(nil, 17, frontends, backends, 6), "a larger subset")
	// Output:
	// [17 659 331 975 177]
	// [17 659 331 975 177] one backend more
	// [17 659 331 975 177 816] a larger subset
}
