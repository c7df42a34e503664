//go:build linux

package etcd

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/testcert"
)

func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}

// refused requires that a target's registry gets neither servers nor a number.
func refused(t *testing.T, target string) {
	t.Helper()
	r, err := Open(target, short)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.Error(t, r.Source(nil).Watch(t.Context(), nil), target)
	_, err = (&Number{registry: r, kind: backends}).look(t.Context(), leases{})
	require.Error(t, err, target)
}

func serves(t *testing.T, target string) {
	t.Helper()
	r, err := Open(target, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	n, err := r.Backend(discovery.Server{Address: "a:1"})
	require.NoError(t, err)
	require.Equal(t, 0, held(t, n))
	watch(t, r.Source(nil)).until(-1, "0=a:1")
}

func TestEtcdWithClientCertificates(t *testing.T) {
	ca, other := testcert.NewCA(t, "authority"), testcert.NewCA(t, "another")
	dir := t.TempDir()
	caFile, otherFile := ca.File(t, dir, "ca"), other.File(t, dir, "other")
	certificate, key := ca.Files(t, dir, "etcd")
	own, ownKey := ca.Files(t, dir, "be-1")
	foreign, foreignKey := other.Files(t, dir, "be-2")
	s := newEtcd(t, "https", "--cert-file", certificate, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", caFile)
	s.options = query("ca", caFile, "cert", own, "key", ownKey)
	s.start(t)
	serves(t, s.target(s.options))
	for _, options := range []string{"", "?tls=true", query("ca", caFile), query("ca", otherFile, "cert", own, "key", ownKey), query("ca", caFile, "cert", foreign, "key", foreignKey)} {
		refused(t, s.target(options))
	}

	// The next connection uses a replaced certificate.
	moving, movingKey := other.Files(t, dir, "be-3")
	r, err := Open(s.target(query("ca", caFile, "cert", moving, "key", movingKey)), short)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	_, err = r.read(t.Context())
	require.Error(t, err)
	ca.Files(t, dir, "be-3")
	until(t, "the new certificate is shown", func() bool {
		_, err := r.read(t.Context())
		return err == nil
	})
}

func TestEtcdWithUsers(t *testing.T) {
	s := newEtcd(t, "http")
	s.start(t)
	r, err := Open(s.target(""), nil)
	require.NoError(t, err)
	client, err := r.etcd()
	require.NoError(t, err)
	for user, role := range map[string]string{"root": "root", "search": "searchers", "other": "others"} {
		_, err = client.RoleAdd(t.Context(), role)
		require.NoError(t, err)
		_, err = client.UserAdd(t.Context(), user, "secret of "+user)
		require.NoError(t, err)
		_, err = client.UserGrantRole(t.Context(), user, role)
		require.NoError(t, err)
	}
	_, err = client.RoleGrantPermission(t.Context(), "searchers", "search/", clientv3.GetPrefixRangeEnd("search/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = client.AuthEnable(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Close())

	dir := t.TempDir()
	password := testcert.Write(t, dir, "password", []byte("secret of search\n"))
	wrong := testcert.Write(t, dir, "wrong", []byte("secret of root\n"))
	other := testcert.Write(t, dir, "other", []byte("secret of other"))
	serves(t, s.target(query("user", "search", "password-file", password)))
	for _, options := range []string{"", query("user", "search", "password-file", wrong), query("user", "other", "password-file", other)} {
		refused(t, s.target(options))
	}

	// etcd is down when a server starts.
	s.kill()
	r, err = Open(s.target(query("user", "search", "password-file", password)), short)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	n := backend(t, r, "b:1")
	require.Error(t, r.Source(nil).Watch(t.Context(), nil))
	s.options = query("user", "search", "password-file", password)
	s.start(t)
	held(t, n)
}
