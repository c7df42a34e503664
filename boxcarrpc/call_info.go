package boxcarrpc

import "context"

// A CallInfo is what goes with a call beside its request and response.
type CallInfo struct {
	// Metadata goes with the request.
	Metadata Metadata

	// The rest is set while the call goes on, and the caller's when it has returned.

	// Header and Trailer came with the response, an error among them; nil if none
	// did.
	Header, Trailer Metadata
	// Server is the one that was asked last, nil if none was.
	Server *Peer
	// Slot is the one that the last attempt was on, -1 if there was none.
	Slot int
	// Attempts counts how often the request was given to a connection.
	Attempts int
}

// CallWith is Call, with what info holds, and fills the rest of info in; nil is
// like Call. Nothing touches info or reads its Metadata once it has returned.
func (p *Pool) CallWith(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	if p.caller != nil {
		return p.intercepted(ctx, method, request, dst, info)
	}
	return p.callPlain(ctx, method, request, dst, info)
}

// callPlain is CallWith without interceptors.
func (p *Pool) callPlain(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	if info != nil {
		*info = CallInfo{Metadata: info.Metadata, Slot: -1}
		if err := info.Metadata.check(); err != nil {
			return dst, err
		}
	}
	p.counts.calls.Add(1)
	out, err := p.call(ctx, method, request, dst, info)
	if err != nil {
		p.counts.failed.Add(1)
		return dst, err
	}
	return out, nil
}

// metadata is what goes with the request.
func (i *CallInfo) metadata() Metadata {
	if i == nil {
		return nil
	}
	return i.Metadata
}

// attempt takes note of an attempt on a lane.
func (i *CallInfo) attempt(lane *clientLane) {
	if i != nil {
		i.Server, i.Slot, i.Header, i.Trailer = lane.transport.server, int(lane.slot), nil, nil
		i.Attempts++
	}
}

// answered takes the metadata of a response.
func (i *CallInfo) answered(lane *clientLane) {
	if i != nil {
		i.Header, i.Trailer = lane.header, lane.trailer
	}
	lane.header, lane.trailer = nil, nil
}

// takeMetadata keeps the metadata of a response for the caller.
func (l *clientLane) takeMetadata(header, trailer []byte) {
	l.header, l.trailer = append(Metadata(nil), header...), append(Metadata(nil), trailer...)
}
