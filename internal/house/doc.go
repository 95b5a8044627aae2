// Package house has the house's rules as tests: who imports whom, how packages
// introduce themselves, how long things may be.
package house
