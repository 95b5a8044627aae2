// Package house tests the house rules: imports, package docs and sizes.
package house
