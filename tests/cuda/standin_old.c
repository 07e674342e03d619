/* A library that lacks what it must have. */
int standin_old_has_nothing(void);

int standin_old_has_nothing(void)
{
    return 0;
}
