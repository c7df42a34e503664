package core

const (
	// sharedLanes is the number of lanes up to which one connection serves them all if responses
	// are small: a server has connections of thousands of clients with a few lanes each. With two
	// connections, the client works on the responses of one while the server works on the requests
	// of the other.
	sharedLanes = 8
	// bytesInFlight is the responses for which a connection has room: the receive buffer of the
	// kernel. With more, its writer waits for its reader and wakes it for each part.
	bytesInFlight = 128 << 10
	// leastLanes is the number of lanes for which more connections are not worth their memory.
	leastLanes = 4
)

// Connections returns how many connections a client uses for its lanes on a server, whose
// responses have so many bytes on average. Few connections make large batches, which cost few
// system calls.
func Connections(lanes int, responseBytes int64) int {
	least, most := 1, max(1, (lanes+leastLanes-1)/leastLanes)
	if lanes > sharedLanes {
		least = 2
	}
	inFlight := int64(lanes) * responseBytes
	return min(max(int((inFlight+bytesInFlight-1)/bytesInFlight), least), most)
}
