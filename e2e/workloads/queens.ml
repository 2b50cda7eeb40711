(* Counts the ways to place queens on a board, with lists, closures and the collector that clears up behind them.
   Usage: queens SECONDS *)

let rec safe column distance = function
  | [] -> true
  | queen :: rest ->
      queen <> column
      && queen <> column + distance
      && queen <> column - distance
      && safe column (distance + 1) rest

let rec columns n = if n = 0 then [] else n :: columns (n - 1)

let rec place size left board =
  if left = 0 then 1
  else
    columns size
    |> List.filter (fun column -> safe column 1 board)
    |> List.map (fun column -> place size (left - 1) (column :: board))
    |> List.fold_left ( + ) 0

let () =
  let seconds = float_of_string Sys.argv.(1) in
  let deadline = Sys.time () +. seconds in
  let rec repeat () = if Sys.time () < deadline then (ignore (Sys.opaque_identity (place 8 8 [])); repeat ()) in
  repeat ()
