package etcdmap

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/etcdtest"
)

func TestZones(t *testing.T) {
	server := etcdtest.Start(t)
	var running sync.WaitGroup
	indexes := make([]int, 6)
	for i := range indexes {
		s := open(t, server, nil)
		running.Go(func() {
			index, zones, err := s.Zone(soon(t), fmt.Sprint("z", i%3))
			if err != nil || index >= zones {
				t.Errorf("zone %d of %d: %v", index, zones, err)
			}
			indexes[i] = index
		})
	}
	running.Wait()
	require.Equal(t, indexes[:3], indexes[3:])
	s := open(t, server, nil)
	index, zones, err := s.Zone(soon(t), "another")
	require.NoError(t, err)
	require.Equal(t, 3, index)
	require.Equal(t, 4, zones)
	_, err = s.client.Put(soon(t), s.zonesKey(), "nonsense")
	require.NoError(t, err)
	_, _, err = s.Zone(soon(t), "another")
	require.ErrorContains(t, err, "docstore/jobs/zones")
}
