# mpi_run RANKS COMMAND...: runs it under mpirun, on any machine (sourced).
#
# Tests have more ranks than some machines have cores, and run as root in containers. Without mpirun, as in
# a build without MPI, the test is skipped.
if ! command -v mpirun >/dev/null 2>&1; then
    echo "skipped: there is no mpirun (Debian: openmpi-bin)"
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # the same of Open MPI 5
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lo

mpi_run() {
    mpi_ranks=$1
    shift
    timeout "${MPI_TIMEOUT:-1700}" mpirun --bind-to none -n "$mpi_ranks" "$@"
}
