// A row's product with x, in uniform control flow: `live` on the one lane that has it, `y_before` what y
// held there, if old_of_row loads it. Of rows that lie next to each other, each has its own on lanes that are
// `lanes` / 4 apart, and `at` counts the rows of the workgroup.
struct Product { value: f32, y_before: f32, row: u32, at: u32, live: bool }
