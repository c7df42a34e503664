package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConvert(t *testing.T) {
	const list = `Package: bash
Version: 5.2.15-2
Maintainer: Matthias <doko@debian.org>
Tag: implemented-in::c,
 role::program
Multi-Arch: foreign

Package: "a"
Version: 1:2
`
	var out strings.Builder
	require.NoError(t, convert(strings.NewReader(list), &out))
	require.Equal(t, `{"id": "bash=5.2.15-2", "package": "bash", "version": "5.2.15-2", "maintainer": "Matthias <doko@debian.org>", `+
		`"tag": "implemented-in::c,\nrole::program", "multi_arch": "foreign"}`+"\n"+
		`{"id": "\"a\"=1:2", "package": "\"a\"", "version": "1:2"}`+"\n", out.String())

	for list, want := range map[string]string{
		" continued\n":             `line 1: " continued" is no field`,
		"Package: a\nno field\n":   `line 2: "no field" is no field`,
		"Package: a\n\n":           "line 2: the record before has no package or version",
		"Version: 1\n":             "the record before has no package or version",
		strings.Repeat("a", 2<<20): "token too long",
	} {
		require.ErrorContains(t, convert(strings.NewReader(list), &out), want)
	}
	require.NoError(t, convert(strings.NewReader(""), &out))
}
