package queue

// noneCodec stores every document uncompressed.
var noneCodec = codec{
	id:         codecNone,
	name:       "none",
	newEncoder: func([]byte) (encoder, error) { return nil, nil },
	newDecoder: func([]byte) (decoder, error) { return noneDecoder{}, nil },
}

type noneDecoder struct{}

func (noneDecoder) decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	if len(stored) != rawBytes {
		return dst, errDecodedLength
	}
	return append(dst, stored...), nil
}
